"""The weights that pruned layers keep, as images: one layer weight by weight, two that follow each
other side by side, or all layers in small. `search.recipes.masks` reads them from a packed
checkpoint."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.figures import FIGURES, Subject
from bitfront.dashboards.figures.style import PALETTE, canvas, saved, titled, words
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.layers.pruning import survivors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Cells of the picture: the gap between kernels, a pruned weight, a kept one, and a pruned one in a
# channel without any kept weight.
GAP, PRUNED, KEPT, EMPTY = range(4)
CELL_COLOURS = ("#FFFFFF", "#E6E6E6", PALETTE[0], "#F3C6A5")


def empty_channels(mask: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(output channels, input channels): True where a mask (out, in, ...) keeps no weight."""
    import numpy as np

    flat = mask.reshape(mask.shape[0], mask.shape[1], -1)
    return np.logical_not(flat.any((1, 2))), np.logical_not(flat.any((0, 2)))


def mask_cells(mask: NDArray[np.bool_]) -> NDArray[np.int8]:
    """A mask as an image: a row of kernels per output channel, a column per input channel, a cell
    per weight and a gap after every kernel. A linear layer has 1x1 kernels."""
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


def survivors_note(mask: NDArray[np.bool_]) -> str:
    """A line about kernels with 3 weights and with more, beside what masks at random would have
    (docs/methods.md 5.6); empty for kernels of one weight."""
    size = mask[0, 0].size
    if size <= 3:
        return ""
    left = mask.reshape(-1, size).sum(1)
    chance = survivors(mask.size, int(mask.sum()), size)
    three, more = int((left == 3).sum()), int((left > 3).sum())
    expected = f"at random {chance[3]:.2f} and {sum(chance[4:]):.2f}"
    return f"\n{three:,} kernels with 3 weights, {more:,} with more ({expected})"


def channels_note(mask: NDArray[np.bool_], empty: NDArray[np.bool_], what: str) -> str:
    """How many channels there are and keep no weight, beside what masks at random would have."""
    chance = survivors(mask.size, int(mask.sum()), mask.size // empty.size)[0]
    return f"{empty.size} {what} channels, {int(empty.sum())} empty (at random {chance:.2f})"


def mask_image(mask: NDArray[np.bool_], title: str, path: str | Path) -> Path:
    """Write the mask of a layer, kernel by kernel; channels without a weight are marked."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    cells = mask_cells(mask)
    height = min(12.0, max(3.0, 8.0 * cells.shape[0] / cells.shape[1]))
    figure, axes = canvas(8, height + 1.2)
    axes.imshow(cells, cmap=ListedColormap(CELL_COLOURS), vmin=GAP, vmax=EMPTY, aspect="equal")
    no_out, no_in = empty_channels(mask)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlabel(channels_note(mask, no_in, "input") + survivors_note(mask), **words())
    axes.set_ylabel(channels_note(mask, no_out, "output"), **words())
    share = 100 * float(mask.mean())
    full_title = f"{title}: {int(mask.sum()):,} of {mask.size:,} weights ({share:.2f} %)"
    titled(axes, full_title)
    names = {KEPT: "kept", PRUNED: "pruned", EMPTY: "channel without a weight"}
    handles = [Patch(color=CELL_COLOURS[k], label=text) for k, text in names.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return saved(figure, path)


def pair_image(
    masks: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    names: tuple[str, str],
    title: str,
    path: str | Path,
) -> Path:
    """Write the masks of two layers of which the second takes the outputs of the first, side by
    side: a line of the picture is a channel between them, an output on the left and an input on the
    right. Bars in the middle say which of them have a weight (robust pruning, Figure 3)."""
    import numpy as np
    from matplotlib.colors import ListedColormap

    first, second = masks[0], masks[1].swapaxes(0, 1)
    empty = [empty_channels(mask)[0] for mask in (first, second)]
    between = len(first)
    figure, axes = canvas(10, 6.5)
    axes.remove()
    widths = {"width_ratios": [12, 0.4, 0.4, 12]}
    left, *bars, right = figure.subplots(1, 4, gridspec_kw=widths)
    look: dict[str, Any] = {"cmap": ListedColormap(CELL_COLOURS), "vmin": GAP, "vmax": EMPTY}
    for plot, mask, name, across in (
        (left, first, names[0], "input"),
        (right, second, names[1], "output"),
    ):
        whole = (0, mask.shape[1], between, 0)
        plot.imshow(mask_cells(mask), extent=whole, aspect="auto", **look)
        plot.set_title(name, **words(11))
        plot.set_xlabel(channels_note(mask, empty_channels(mask)[1], across), **words(9))
    for bar, none in zip(bars, empty, strict=True):
        cells = np.where(none, GAP, KEPT)[:, None]
        bar.imshow(cells, extent=(0, 1, between, 0), aspect="auto", **look)
    for plot in (left, *bars, right):
        plot.set_xticks([])
        plot.set_yticks([])
    left.set_ylabel(f"{between} channels between the layers", **words())
    figure.suptitle("\n".join(textwrap.wrap(f"{title}: {aligned(*empty)}", 90)), **words(13))
    return saved(figure, path)


def aligned(outputs: NDArray[np.bool_], inputs: NDArray[np.bool_]) -> str:
    """How many channels have no weight on either side, beside the number that two unrelated layers
    with as many empty channels would share, a b / n."""
    chance = int(outputs.sum()) * int(inputs.sum()) / len(outputs)
    return (
        f"{int(outputs.sum())} empty outputs, {int(inputs.sum())} empty inputs, "
        f"{int((outputs & inputs).sum())} of both ({chance:.1f} if unrelated)"
    )


def kernel_shares(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The share of every kernel that is kept, as (output channels, input channels)."""
    shares: NDArray[np.float64] = mask.reshape(*mask.shape[:2], -1).mean(2)
    return shares


def masks_image(masks: Mapping[str, NDArray[np.bool_]], title: str, path: str | Path) -> Path:
    """Write the masks of all layers in small: a cell per kernel, the darker the more it keeps."""
    layers = {
        name: {
            "shape": mask.shape, "kept": float(mask.mean()), "cells": kernel_shares(mask).tolist()
        }
        for name, mask in masks.items()
    }  # fmt: skip
    return kept_kernels_image({"layers": layers}, title, path)


def kept_kernels_image(picture: dict[str, Any], title: str, path: str | Path) -> Path:
    """Write the masks of all layers in small, from the data that a trial reports: `layers` by name,
    with their `shape`, the share `kept`, and `cells`: the share of every kernel, or the mean of
    neighbouring ones."""
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


def draw_masks(
    masks: Mapping[str, NDArray[np.bool_]], title: str, layer: str | None, path: Path
) -> None:
    """Write what layers keep: all of them in small, one weight by weight, or two (`A,B`) side by
    side."""
    if layer is None:
        masks_image(masks, title, path)
        return
    names = layer.split(",")
    for name in names:
        if name not in masks:
            raise UserError(f"--layer {name}: no such pruned layer, {did_you_mean(name, masks)}")
    if len(names) == 1:
        mask_image(masks[layer], f"{title}, {layer}", path)
        return
    if len(names) > 2:
        raise UserError(f"--layer {layer}: one layer, or two that follow each other")
    first, second = (masks[name] for name in names)
    if first.shape[0] != second.shape[1]:
        raise UserError(
            f"--layer {layer}: {names[0]} has {first.shape[0]} outputs, {names[1]} "
            f"{second.shape[1]} inputs: the second is to take the outputs of the first"
        )
    pair_image((first, second), (names[0], names[1]), title, path)


@FIGURES.register
class MasksKind:
    """`bitfront figure --kind masks`."""

    name = "masks"
    doc = "the weights that pruned layers keep, of a packed checkpoint"

    @staticmethod
    def draw(subject: Subject, path: Path) -> None:
        """Write the masks of a checkpoint, of all layers or of one."""
        from bitfront.search.recipes.masks import pruned_masks  # torch

        masks, title = pruned_masks(subject.checkpoint())
        draw_masks(masks, subject.titled(title), subject.layer, path)
