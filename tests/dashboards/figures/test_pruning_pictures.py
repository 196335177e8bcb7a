"""Claims about pictures of pruned networks and of fronts over three objectives."""

import csv
import io

import numpy as np
import pytest

from bitfront.dashboards.figures.front.pairs import PairPoint, pair_figures, pairs_html, pairs_png
from bitfront.dashboards.figures.networks.kept import kept_csv, kept_png
from bitfront.dashboards.figures.networks.masks import (
    EMPTY,
    GAP,
    KEPT,
    PRUNED,
    aligned,
    channels_note,
    draw_masks,
    empty_channels,
    mask_cells,
    mask_image,
    survivors_note,
)
from bitfront.dashboards.figures.trials.drops import curves_csv, curves_png, largest_drop
from bitfront.trainables.errors import UserError


def is_png(path):
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def example_mask():
    mask = np.zeros((4, 3, 3, 3), dtype=bool)
    mask[0, 0, 1, 1] = mask[2, 2, 0, 2] = mask[3, 0, 2, 0] = True
    return mask


def test_channels_that_keep_nothing_are_found():
    outputs, inputs = empty_channels(example_mask())
    assert outputs.tolist() == [False, True, False, False]
    assert inputs.tolist() == [False, True, False]


def test_kernels_are_cells_with_gaps_and_empty_channels_are_marked():
    cells = mask_cells(example_mask())
    assert cells.shape == (16, 12)
    assert (cells == KEPT).sum() == 3
    assert cells[1, 1] == KEPT
    assert cells[2 * 4 + 0, 2 * 4 + 2] == KEPT
    assert (cells[3::4] == GAP).all()
    assert (cells[:, 3::4] == GAP).all()
    assert (cells[4:7, 0:3] == EMPTY).all()
    assert (cells[0:3, 4:7] == EMPTY).all()
    assert cells[0, 0] == PRUNED
    assert (cells != GAP).sum() == example_mask().size


def test_a_linear_layer_is_one_of_single_cells():
    assert mask_cells(np.ones((5, 2), dtype=bool)).shape == (10, 4)


@pytest.mark.parametrize("shape", [(4, 3, 3, 3), (10, 64), (1, 1, 1, 1)])
def test_a_mask_is_drawn(tmp_path, shape):
    mask = np.random.default_rng(0).random(shape) < 0.1
    assert is_png(mask_image(mask, "a $layer$", tmp_path / "mask.png"))


def test_a_mask_says_what_pruning_at_random_would_leave() -> None:
    """Four kernels of four weights of which twelve are kept: one has three, two are whole; at
    random 4 * 4 C(12, 9)/C(16, 12) = 1.93 have three and 4 C(12, 8)/C(16, 12) = 1.09 four."""
    mask = np.ones((2, 2, 2, 2), dtype=bool)
    mask[0, 0, 0, 0] = mask[0, 1, 0] = mask[0, 1, 1, 0] = False
    note = survivors_note(mask)
    assert note == "\n1 kernels with 3 weights, 2 with more (at random 1.93 and 1.09)"
    assert survivors_note(mask[..., :1, :1]) == ""


def test_empty_channels_are_told_beside_those_of_chance() -> None:
    """One weight of 2 x 2 kernels of 1 x 1: one input channel is empty, by chance too."""
    mask = np.zeros((2, 2), dtype=bool)
    mask[0, 0] = True
    note = channels_note(mask, empty_channels(mask)[1], "input")
    assert note == "2 input channels, 1 empty (at random 1.00)"


def test_layers_that_follow_each_other_are_drawn_side_by_side(tmp_path):
    """Channels 1 and 2 of 4 leave the first layer empty, 2 and 3 enter the second one empty: one is
    empty on both sides, as 2 * 2 / 4 unrelated ones would be."""
    first, second = np.ones((4, 3, 3, 3), dtype=bool), np.ones((5, 4, 3, 3), dtype=bool)
    first[1:3] = second[:, 2:] = False
    told = aligned(empty_channels(first)[0], empty_channels(second)[1])
    assert told == "2 empty outputs, 2 empty inputs, 1 of both (1.0 if unrelated)"
    masks = {"a": first, "b": second}
    draw_masks(masks, "$net$", "a,b", tmp_path / "pair.png")
    assert is_png(tmp_path / "pair.png")
    with pytest.raises(UserError, match="b has 5 outputs, a 3 inputs"):
        draw_masks(masks, "net", "b,a", tmp_path / "no.png")
    with pytest.raises(UserError, match="--layer c: no such pruned layer"):
        draw_masks(masks, "net", "a,c", tmp_path / "no.png")
    assert not (tmp_path / "no.png").exists()


def test_the_largest_drop_is_between_two_epochs():
    drop, epoch = largest_drop([0.5, 0.7, 0.4, 0.6, 0.55])
    assert drop == pytest.approx(0.3)
    assert epoch == 3
    assert largest_drop([0.1, 0.2, 0.2]) == (0.0, 0)
    assert largest_drop([0.1]) == (0.0, 0)
    assert largest_drop([]) == (0.0, 0)


def test_curves_and_counts_are_drawn_and_listed(tmp_path):
    curves = {"p 0.1": [0.2, 0.5, 0.6], "p 1": [0.3, 0.1]}
    assert is_png(curves_png(curves, "t", "accuracy", tmp_path / "c.png"))
    rows = list(csv.reader(io.StringIO(curves_csv(curves))))
    assert rows[0] == ["epoch", "p 0.1", "p 1"]
    assert rows[3] == ["3", "0.6", ""]
    assert rows[-1] == ["largest drop", "0", "0.2"]
    kept, sizes = {"p 0": {"a": 3, "b": 4}}, {"a": 9, "b": 90}
    assert is_png(kept_png(kept, sizes, "t", tmp_path / "k.png"))
    assert list(csv.reader(io.StringIO(kept_csv(kept, sizes))))[1] == ["a", "9", "3"]


POINTS = [
    PairPoint("t1", (90.0, 40.0, 1e6), True),
    PairPoint("t2", (80.0, 45.0, 5e5), True),
    PairPoint("t3", (70.0, 30.0, 2e6), False),
]
LABELS = ["accuracy, %", "robust accuracy under PGD-20, %", "FLOPs"]


def test_three_objectives_are_shown_in_pairs(tmp_path):
    figures = pair_figures(POINTS, LABELS)
    assert list(figures) == ["pair-0-1", "pair-0-2", "pair-1-2"]
    for figure in figures.values():
        assert [list(trace.customdata) for trace in figure.data] == [["t3"], ["t1", "t2"]]
    axes = figures["pair-1-2"].layout
    assert [axes.yaxis.title.text, axes.xaxis.title.text] == LABELS[1:]
    assert "robust accuracy under PGD-20" in pairs_html(POINTS, LABELS, "three")
    assert is_png(pairs_png(POINTS, LABELS, "three", tmp_path / "pairs.png"))


def test_a_search_without_a_finished_trial_has_a_picture_too(tmp_path):
    assert is_png(pairs_png([], LABELS, "none", tmp_path / "pairs.png"))
