"""How many weights each layer of a pruned network keeps, as png and csv; which weights they are is
drawn in `masks`."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.style import GRID, INK, PALETTE, canvas, saved, titled, words

if TYPE_CHECKING:
    pass


MARKERS = "os^vDPX*p"


Kept = Mapping[str, Mapping[str, int]]
"""Weights that each layer keeps, by the name of the setting, for example `p 0.1`."""


def kept_png(kept: Kept, sizes: Mapping[str, int], title: str, path: str | Path) -> Path:
    """Write the weights that each layer keeps, in the order of the network, a line per setting."""
    figure, axes = canvas(8, 5.2)
    names = list(sizes)
    axes.plot(range(len(names)), list(sizes.values()), color=INK, linestyle=":", label="all")
    for i, (setting, counts) in enumerate(kept.items()):
        axes.plot(
            range(len(names)), [counts[n] for n in names], color=PALETTE[i % len(PALETTE)],
            marker=MARKERS[i % len(MARKERS)], markersize=4, label=setting,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.grid(color=GRID)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8 if len(names) < 30 else 6)
    axes.set_ylabel("weights kept", **words())
    titled(axes, title)
    axes.legend(frameon=False)
    return saved(figure, path)


def kept_csv(kept: Kept, sizes: Mapping[str, int]) -> str:
    """A row per layer: its weights, and how many each setting keeps."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["layer", "weights", *kept])
    for name, size in sizes.items():
        writer.writerow([name, size, *(counts[name] for counts in kept.values())])
    return text.getvalue()
