"""Learning curves of pruned networks with their largest drop between epochs, as png and csv. Those
of all trials are in `curves`."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.networks.kept import MARKERS
from bitfront.dashboards.figures.style import GRID, PALETTE, canvas, saved, titled, words

if TYPE_CHECKING:
    pass


def largest_drop(curve: Sequence[float]) -> tuple[float, int]:
    """(largest fall between two consecutive epochs, the later of the two, counted from 1); (0, 0)
    where the curve never falls."""
    drops = [(a - b, epoch) for epoch, (a, b) in enumerate(itertools.pairwise(curve), start=2)]
    worst = max(drops, default=(0.0, 0))
    return worst if worst[0] > 0 else (0.0, 0)


def curves_png(
    curves: Mapping[str, Sequence[float]], title: str, label: str, path: str | Path
) -> Path:
    """Write a line per setting, with its largest drop in the legend; accuracies are fractions."""
    figure, axes = canvas(8, 5.2)
    for i, (setting, curve) in enumerate(curves.items()):
        drop, epoch = largest_drop(curve)
        text = f"largest drop {100 * drop:.1f} points, epoch {epoch}" if epoch else "never falls"
        axes.plot(
            range(1, len(curve) + 1), [100 * v for v in curve], color=PALETTE[i % len(PALETTE)],
            marker=MARKERS[i % len(MARKERS)], markersize=3, label=f"{setting}: {text}",
        )  # fmt: skip
    axes.grid(color=GRID)
    axes.set_xlabel("epoch", **words())
    axes.set_ylabel(f"{label}, %", **words())
    titled(axes, title)
    axes.legend(frameon=False)
    return saved(figure, path)


def curves_csv(curves: Mapping[str, Sequence[float]]) -> str:
    """A row per epoch, and a last row with the largest drops."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["epoch", *curves])
    longest = max((len(c) for c in curves.values()), default=0)
    for epoch in range(longest):
        shown = [f"{c[epoch]:.6g}" if epoch < len(c) else "" for c in curves.values()]
        writer.writerow([epoch + 1, *shown])
    writer.writerow(["largest drop", *(f"{largest_drop(c)[0]:.6g}" for c in curves.values())])
    return text.getvalue()
