"""The shape of a quantizer over its schedule: the quantized value of a latent (F) and the factor on
its gradient (B)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bitfront.dashboards.figures.style import GRID, INK, canvas, saved, words

DPI = 110


def quantizer_image(shapes: dict[str, Any], title: str, path: Path) -> Path:
    """Write F and B side by side, light at the start of training and dark at its end; a row for
    weights, and one for inputs where they differ."""
    from matplotlib import colormaps

    rows = list(shapes["forward"])
    figure, first = canvas(8, 0.8 + 3.0 * len(rows), DPI)
    first.remove()
    grid = figure.subplots(len(rows), 2, squeeze=False)
    fractions = shapes["fractions"]
    colours = colormaps["cividis_r"]([0.15 + 0.85 * f for f in fractions])
    for axes_pair, what in zip(grid, rows, strict=True):
        for axes, way, letter in zip(axes_pair, ("forward", "backward"), "FB", strict=True):
            for k, curve in enumerate(shapes[way][what]):
                label = f"{100 * fractions[k]:.0f} % ({shapes['values'][k]:.4g})"
                axes.plot(shapes["x"], curve, color=colours[k], linewidth=1.8, label=label)
            axes.grid(color=GRID)
            axes.tick_params(labelsize=9, colors=INK)
            axes.set_xlabel(f"latent of {what}", **words(10))
            axes.set_ylabel(f"{letter}: {way}", **words(10))
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9,
        title="of training (annealed value)", title_fontsize=9,
    )  # fmt: skip
    figure.suptitle(title, **words(12))
    return saved(figure, path)
