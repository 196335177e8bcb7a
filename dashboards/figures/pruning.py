"""Pictures of pruned networks: the mask of a layer, what layers keep for several exponents, and
learning curves with the largest drop between epochs named; each as png and csv."""

import csv
import io
import itertools
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.figures.style import GRID, INK, PALETTE, canvas, saved, titled, words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Of the cells of a mask: the gap between kernels, pruned, kept, and pruned in an empty channel.
GAP, PRUNED, KEPT, EMPTY = range(4)
CELL_COLOURS = ("#FFFFFF", "#E6E6E6", PALETTE[0], "#F3C6A5")
MARKERS = "os^vDPX*p"


# --- the mask of a layer ------------------------------------------------------------------------


def empty_channels(mask: "NDArray[np.bool_]") -> "tuple[NDArray[np.bool_], NDArray[np.bool_]]":
    """(output channels, input channels) of a mask (out, in, ...) that keep nothing."""
    import numpy as np

    flat = mask.reshape(mask.shape[0], mask.shape[1], -1)
    return np.logical_not(flat.any((1, 2))), np.logical_not(flat.any((0, 2)))


def mask_cells(mask: "NDArray[np.bool_]") -> "NDArray[np.int8]":
    """A mask as an image: output channels down, input channels across, each kernel its own cells
    with a gap behind it. A linear layer is one of 1x1 kernels."""
    import numpy as np

    kernels = mask.reshape(*mask.shape[:2], *(mask.shape[2:] or (1, 1)))
    out, inside, height, width = kernels.shape
    no_out, no_in = empty_channels(mask)
    cells = np.where(kernels, KEPT, PRUNED).astype(np.int8)
    empty = no_out[:, None] | no_in[None]
    cells[empty] = EMPTY
    framed = np.full((out, inside, height + 1, width + 1), GAP, dtype=np.int8)
    framed[:, :, :height, :width] = cells
    return framed.transpose(0, 2, 1, 3).reshape(out * (height + 1), inside * (width + 1))


def mask_image(mask: "NDArray[np.bool_]", title: str, path: str | Path) -> Path:
    """What a layer keeps, kernel by kernel; channels without a weight are marked."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    cells = mask_cells(mask)
    height = min(12.0, max(3.0, 8.0 * cells.shape[0] / cells.shape[1]))
    figure, axes = canvas(8, height + 1.2)
    axes.imshow(cells, cmap=ListedColormap(CELL_COLOURS), vmin=GAP, vmax=EMPTY, aspect="equal")
    no_out, no_in = empty_channels(mask)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlabel(f"{mask.shape[1]} input channels, {int(no_in.sum())} empty", **words())
    axes.set_ylabel(f"{mask.shape[0]} output channels, {int(no_out.sum())} empty", **words())
    share = 100 * float(mask.mean())
    full_title = f"{title}: {int(mask.sum()):,} of {mask.size:,} weights ({share:.2f} %)"
    titled(axes, full_title)
    names = {KEPT: "kept", PRUNED: "pruned", EMPTY: "channel without a weight"}
    handles = [Patch(color=CELL_COLOURS[k], label=text) for k, text in names.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return saved(figure, path)


def kernel_shares(mask: "NDArray[np.bool_]") -> "NDArray[np.float64]":
    """(output, input) channels: the share of a kernel that is kept."""
    return mask.reshape(*mask.shape[:2], -1).mean(2)


def masks_image(masks: "Mapping[str, NDArray[np.bool_]]", title: str, path: str | Path) -> Path:
    """Every pruned layer in small: a cell a kernel, the darker the more of it is kept."""
    layers = {
        name: {
            "shape": mask.shape, "kept": float(mask.mean()), "cells": kernel_shares(mask).tolist()
        }
        for name, mask in masks.items()
    }  # fmt: skip
    return kept_kernels_image({"layers": layers}, title, path)


def kept_kernels_image(picture: dict[str, Any], title: str, path: str | Path) -> Path:
    """The same from what a trial tells: `layers` by name with `shape`, the share `kept` and
    `cells`, the share of each kernel, or of neighbouring ones together."""
    layers = picture["layers"]
    columns = min(4, len(layers))
    rows = -(-len(layers) // columns)
    figure, first = canvas(8, 1.0 + 2.1 * rows)
    first.remove()
    plots = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (name, layer) in zip(plots, layers.items(), strict=False):
        image = axes.imshow(layer["cells"], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_title(f"{name}\n{100 * layer['kept']:.1f} % kept", **words(9))
        axes.set_xlabel(f"{layer['shape'][1]} inputs", **words(8))
        axes.set_ylabel(f"{layer['shape'][0]} outputs", **words(8))
        axes.set_xticks([])
        axes.set_yticks([])
    for axes in plots[len(layers) :]:
        axes.set_visible(False)
    bar = figure.colorbar(image, ax=plots, shrink=0.6)
    bar.set_label("share of a kernel that is kept", **words(10))
    figure.suptitle("\n".join(textwrap.wrap(title, 70)), **words(14))
    return saved(figure, path)


# --- what layers keep ---------------------------------------------------------------------------

Kept = Mapping[str, Mapping[str, int]]
"""What a line is called, for example `p 0.1`, to the weights each layer keeps."""


def kept_png(kept: Kept, sizes: Mapping[str, int], title: str, path: str | Path) -> Path:
    """Weights a layer keeps, in the order of the network, a line a setting."""
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
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["layer", "weights", *kept])
    for name, size in sizes.items():
        writer.writerow([name, size, *(counts[name] for counts in kept.values())])
    return text.getvalue()


# --- learning curves ----------------------------------------------------------------------------


def largest_drop(curve: Sequence[float]) -> tuple[float, int]:
    """(how far the value fell between two epochs at most, the later one of them, from 1); a curve
    that never falls has (0, 0)."""
    drops = [(a - b, epoch) for epoch, (a, b) in enumerate(itertools.pairwise(curve), start=2)]
    worst = max(drops, default=(0.0, 0))
    return worst if worst[0] > 0 else (0.0, 0)


def curves_png(
    curves: Mapping[str, Sequence[float]], title: str, label: str, path: str | Path
) -> Path:
    """A line a setting; accuracies are fractions. The legend names the largest drop."""
    figure, axes = canvas(8, 5.2)
    for i, (setting, curve) in enumerate(curves.items()):
        drop, epoch = largest_drop(curve)
        told = f"largest drop {100 * drop:.1f} points, epoch {epoch}" if epoch else "never falls"
        axes.plot(
            range(1, len(curve) + 1), [100 * v for v in curve], color=PALETTE[i % len(PALETTE)],
            marker=MARKERS[i % len(MARKERS)], markersize=3, label=f"{setting}: {told}",
        )  # fmt: skip
    axes.grid(color=GRID)
    axes.set_xlabel("epoch", **words())
    axes.set_ylabel(f"{label}, %", **words())
    titled(axes, title)
    axes.legend(frameon=False)
    return saved(figure, path)


def curves_csv(curves: Mapping[str, Sequence[float]]) -> str:
    """A row an epoch; the last one holds the largest drops."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["epoch", *curves])
    longest = max((len(c) for c in curves.values()), default=0)
    for epoch in range(longest):
        shown = [f"{c[epoch]:.6g}" if epoch < len(c) else "" for c in curves.values()]
        writer.writerow([epoch + 1, *shown])
    writer.writerow(["largest drop", *(f"{largest_drop(c)[0]:.6g}" for c in curves.values())])
    return text.getvalue()
