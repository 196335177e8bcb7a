"""Claims about tracking: boxes are read as they are meant, regions are where they should be, the
tracker follows what moves, OTB's measures have their closed forms, and a network learns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bitfront.trainables import packed
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.data import (
    DATASETS,
    Batches,
    in_order,
    load_test,
    load_train,
    sequence_files,
    split,
)
from bitfront.trainables.data import datasets as datasets_module
from bitfront.trainables.data.datasets import IMAGENET_MEAN, IMAGENET_STD
from bitfront.trainables.data.sequence_files import (
    Sequence,
    box_of_polygon,
    read_boxes,
    read_sequence,
    read_sequences,
)
from bitfront.trainables.data.sequences import Sequences, context_side
from bitfront.trainables.data.shapes import moving_shapes
from bitfront.trainables.errors import UserError
from bitfront.trainables.models import build_model
from bitfront.trainables.models.siamfc import OUT_SCALE, SiamFC, respond
from bitfront.trainables.plan import plan_layers
from bitfront.trainables.selectors import SelectionSpec
from bitfront.trainables.selectors.scores.scoring import Scoring, Switchable
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.tasks import KINDS, kind_of
from bitfront.trainables.tasks.object_tracking import balanced_logistic
from bitfront.trainables.tasks.trackers.siamfc import locate, measure, overlap, track
from bitfront.trainables.training.checkpoints import load_state, save_state
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.network import Network
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.training.pretraining import PretrainedCache, data_digest, pretraining_spec

pytestmark = pytest.mark.slow

REAL = Path(os.environ.get("BITFRONT_DATA", "nowhere")) / "tracking"


@pytest.fixture(autouse=True)
def _nothing_cached_from_other_tests() -> Iterator[None]:
    yield
    datasets_module._read.cache_clear()
    sequence_files.frame_files.cache_clear()


@pytest.fixture(scope="module")
def shapes() -> Sequences:
    return Sequences.of(moving_shapes(24, seed=7), DATASETS.get("moving-shapes"))


def write_sequence(folder: Path, item: Sequence, frames: str = ".", layout: str = "got10k") -> None:
    """GOT-10k: boxes with commas beside the frames; OTB: with tabs, frames in `img`."""
    (folder / frames).mkdir(parents=True)
    assert item.pixels is not None
    for i, pixels in enumerate(item.pixels):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / frames / f"{i + 1:08d}.png")
    separator, file = (
        (",", "groundtruth.txt") if layout == "got10k" else ("\t", "groundtruth_rect.txt")
    )
    one_based = item.boxes + np.array([1, 1, 0, 0])
    lines = [separator.join(f"{v:.6f}" for v in box) for box in one_based]
    (folder / file).write_text("\n".join(lines) + "\n")


# --- boxes and files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", ["11,21,30,40", "11\t21\t30\t40", "11 21 30 40", "11.0, 21.0,30,40"]
)
def test_boxes_are_read_whatever_separates_them(line: str, tmp_path: Path) -> None:
    (tmp_path / "boxes.txt").write_text(f"{line}\n\n{line}\n")
    assert read_boxes(tmp_path / "boxes.txt").tolist() == [[10, 20, 30, 40]] * 2


def test_a_polygon_becomes_the_box_of_its_middle_and_area() -> None:
    upright = np.array([[10, 20], [40, 20], [40, 60], [10, 60]], dtype=float)
    assert box_of_polygon(upright) == pytest.approx([10, 20, 30, 40])
    diamond = np.array([[10, 0], [20, 10], [10, 20], [0, 10]], dtype=float)
    x, y, w, h = box_of_polygon(diamond)
    assert w * h == pytest.approx(200)  # half of its bounding box
    assert w == pytest.approx(h)
    assert (x + w / 2, y + h / 2) == pytest.approx((10, 10))
    assert box_of_polygon(np.full((4, 2), np.nan)) == [0.0] * 4


def test_frames_without_the_target_are_never_shown_in_training(
    shapes: Sequences, tmp_path: Path
) -> None:
    write_sequence(tmp_path / "a", shapes.items[0])
    (tmp_path / "a" / "absence.label").write_text("0\n1\n0\n1\n1\n1\n1\n1\n1\n1\n")
    item = read_sequence(tmp_path / "a")
    assert item.visible.tolist() == [0, 2]
    some = Sequences.of([item] * 2, shapes.info)
    drawing = torch.Generator().manual_seed(0)
    frames = set()
    for _ in range(20):
        exemplars, searches, _ = some._draw([0, 1], drawing, jitter=True)
        frames |= {cut[1] for cut in exemplars + searches}
    assert frames == {0, 2}


@pytest.mark.parametrize(("frames", "layout"), [(".", "got10k"), ("img", "otb"), ("imgs", "otb")])
def test_every_layout_gives_back_frames_and_boxes(
    frames: str, layout: str, shapes: Sequences, tmp_path: Path
) -> None:
    for i in (1, 0):
        write_sequence(tmp_path / f"s{i}", shapes.items[i], frames, layout)
    (tmp_path / "list.txt").write_text("s0\ns1\n")
    found = read_sequences(tmp_path)
    assert [item.name for item in found] == ["s0", "s1"]
    for item, original in zip(found, shapes.items, strict=False):
        np.testing.assert_allclose(item.boxes, original.boxes, atol=1e-5)
        assert original.pixels is not None
        assert torch.equal(item.frame(3), original.pixels[3])


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "boxes.txt").write_text("1,2,3,4\n1,2,x,4\n")
    with pytest.raises(UserError, match=r"boxes.txt:2: not numbers"):
        read_boxes(tmp_path / "boxes.txt")
    (tmp_path / "boxes.txt").write_text("1,2,3\n")
    with pytest.raises(UserError, match="3 numbers, a box has 4"):
        read_boxes(tmp_path / "boxes.txt")


@pytest.mark.parametrize("name", ["got10k", "sequences:mine"])
def test_missing_sequences_say_where_and_how(name: str, tmp_path: Path) -> None:
    for load in (load_train, load_test):
        with pytest.raises(UserError, match="not found: looked for") as caught:
            load(name, tmp_path)
        assert str(tmp_path) in caught.value.message
        assert str(tmp_path) in str(caught.value.hint)


def test_training_sequences_are_got10ks_and_test_sequences_are_otbs(
    shapes: Sequences, tmp_path: Path
) -> None:
    write_sequence(tmp_path / "got10k" / "train" / "one", shapes.items[0])
    write_sequence(tmp_path / "otb" / "two", shapes.items[1], "img", "otb")
    assert [item.name for item in load_train("got10k", tmp_path).items] == ["one"]
    assert [item.name for item in load_test("got10k", tmp_path).items] == ["two"]


@pytest.mark.skipif(not REAL.is_dir(), reason="the sample sequences are not in BITFRONT_DATA")
def test_the_real_sample_sequences_are_read_and_tracked() -> None:
    bag, crossing = sorted(read_sequences(REAL), key=lambda item: item.name, reverse=True)
    assert (len(crossing), len(bag)) == (120, 196)
    assert crossing.boxes[0].tolist() == [204, 150, 17, 50]
    assert len(bag.visible) == 196
    # A colour histogram of a kind: an untrained network, a few frames.
    short = [Sequence(i.name, i.boxes[:4], folder=i.folder) for i in (bag, crossing)]
    part = Sequences.of(short, DATASETS.get("sequences:real:127"))
    torch.manual_seed(0)
    model = build_model("siamfc", {"width": 4, "blocks": 1}, (3, 127, 127), 1).eval()
    tracked = track(model, part)
    assert [len(boxes) for boxes in tracked] == [4, 4]
    assert measure([i.boxes for i in short], tracked).precision > 0


# --- regions ------------------------------------------------------------------------------------


def test_the_context_is_half_the_mean_size_on_every_side() -> None:
    assert context_side(np.array([20.0, 20.0])) == pytest.approx(40)
    assert context_side(np.array([10.0, 30.0])) == pytest.approx(np.sqrt(30 * 50))


def raw(x: torch.Tensor, part: Sequences) -> torch.Tensor:
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (part.info.mean, part.info.std))
    return (x * std + mean) * 255


def test_a_cut_of_the_frames_own_pixels_is_those_pixels(shapes: Sequences) -> None:
    pixels = shapes.items[0].pixels
    assert pixels is not None
    found = raw(shapes.cut([(0, 2, 30.0, 40.0, 16.0)], 16), shapes)[0]
    torch.testing.assert_close(found, pixels[2, :, 32:48, 22:38].float(), atol=0.01, rtol=0)


def test_beyond_the_edge_is_the_mean_colour(shapes: Sequences) -> None:
    pixels = shapes.items[0].pixels
    assert pixels is not None
    found = raw(shapes.cut([(0, 0, -100.0, -100.0, 20.0)], 4), shapes)[0]
    mean = pixels[0].float().mean((1, 2))
    torch.testing.assert_close(found, mean.view(3, 1, 1).expand(3, 4, 4), atol=0.01, rtol=0)


def test_frames_of_different_sizes_are_cut_like_frames_of_one(shapes: Sequences) -> None:
    large = moving_shapes(1, seed=3, size=100)[0]
    mixed = Sequences.of([shapes.items[0], large], shapes.info)
    cuts = [(0, 1, 30.0, 30.0, 20.0), (1, 1, 50.0, 50.0, 20.0)]
    both = mixed.cut(cuts, 12)
    for i, cut in enumerate(cuts):
        torch.testing.assert_close(both[i : i + 1], mixed.cut([cut], 12))


def test_the_label_says_where_the_target_is(shapes: Sequences) -> None:
    """Cutting at the place the label gives finds the target again, in the middle."""
    small, large = shapes.sizes
    drawing = torch.Generator().manual_seed(1)
    exemplars, searches, places = shapes._draw(list(range(24)), drawing, jitter=True)
    for (index, _, *_), (_, frame, x, y, side), place in zip(
        exemplars, searches, places, strict=True
    ):
        box = shapes.items[index].boxes[frame]
        offset = np.array(place) * (large - small) * side / large
        np.testing.assert_allclose(np.array([x, y]) + offset, box[:2] + box[2:] / 2, atol=1e-4)
    assert np.abs(places).max() > 0.02


def test_files_give_the_pairs_that_memory_gives(shapes: Sequences, tmp_path: Path) -> None:
    for i, item in enumerate(shapes.items[:4]):
        write_sequence(tmp_path / f"s{i}", item)
    files = Sequences.of(read_sequences(tmp_path), shapes.info)
    memory = shapes.subset(np.arange(4))
    assert (files.in_memory, memory.in_memory) == (False, True)
    for one, two in zip(Batches(files, 2, 5), Batches(memory, 2, 5), strict=True):
        for a, b in ((one[0][0], two[0][0]), (one[0][1], two[0][1]), (one[1], two[1])):
            torch.testing.assert_close(a, b, atol=1e-3, rtol=0)


def test_unaugmented_pairs_never_change(shapes: Sequences) -> None:
    first, again = (list(in_order(shapes, 10)) for _ in range(2))
    assert [len(y) for _, y in first] == [10, 10, 4]
    for (x, y), (same_x, _) in zip(first, again, strict=True):
        assert torch.equal(x[1], same_x[1])
        assert not y.any()


def test_the_synthetic_sequences_never_change_and_stay_in_view() -> None:
    one, same = (moving_shapes(3, seed=0) for _ in range(2))
    for a, b in zip(one, same, strict=True):
        assert a.pixels is not None
        assert b.pixels is not None
        assert torch.equal(a.pixels, b.pixels)
        assert (a.boxes[:, :2] >= -1e-9).all()
        assert (a.boxes[:, :2] + a.boxes[:, 2:] <= 80 + 1e-9).all()
        assert (np.abs(np.diff(a.boxes[:, :2], axis=0)) > 0).any()
    train, test = load_train("moving-shapes"), load_test("moving-shapes")
    info = DATASETS.get("moving-shapes")
    assert (len(train), len(test)) == (info.train_size, info.test_size)
    assert not torch.equal(train.items[0].pixels, test.items[0].pixels)
    kept, held = split(train, 0.25, 0)
    assert (len(kept), len(held)) == (180, 60)
    assert not {i.name for i in kept.items} & {i.name for i in held.items}


# --- the network --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("search", "features", "response", "stride"), [(255, (10, 26), 17, 8), (63, (3, 11), 9, 4)]
)
def test_sizes_are_those_of_siamfc(
    search: int, features: tuple[int, int], response: int, stride: int
) -> None:
    with torch.device("meta"):
        model = build_model("siamfc", {"width": 4}, (3, search, search), 1)
        exemplar, region = (
            torch.empty(2, 3, search // 2, search // 2),
            torch.empty(2, 3, search, search),
        )
        assert model(exemplar).shape[-1] == features[0]
        assert model(region).shape[-1] == features[1]
        assert model((exemplar, region)).shape == (2, response, response)
    assert (search - search // 2) / (response - 1) == stride


def test_a_shift_of_the_stride_moves_the_features_by_one_cell() -> None:
    torch.manual_seed(0)
    model = build_model("siamfc", {"width": 4, "blocks": 1}, (3, 63, 63), 1).eval()
    wide = torch.randn(1, 3, 63, 67)
    left, right = model(wide[..., :63]), model(wide[..., 4:])
    # Padding still shows near the edges.
    torch.testing.assert_close(left[..., 3:-3, 4:-3], right[..., 3:-3, 3:-4])


def test_the_correlation_is_the_plain_sum_of_products() -> None:
    torch.manual_seed(0)
    exemplars, searches = torch.randn(2, 3, 2, 2), torch.randn(2, 3, 3, 5, 5)
    found = respond(exemplars, searches)
    assert found.shape == (2, 3, 4, 4)
    scale = OUT_SCALE * 25600 / 12
    expected = (exemplars[1] * searches[1, 2, :, 1:3, 3:5]).sum() * scale
    torch.testing.assert_close(found[1, 2, 1, 3], expected)


def test_the_plan_has_every_convolution_of_the_stages() -> None:
    with torch.device("meta"):
        model = build_model("siamfc", {}, (3, 255, 255), 1)
    assert len(plan_layers(model)) == 12
    assert len(plan_layers(model, "all")) == 12 + 1 + 2
    table = task_cost_table(Task(dataset="got10k", model={"name": "siamfc"}))
    full, binary = (table.totals(level * 12) for level in "FB")
    by_hand = 147 * 64 * 125**2 + 3 * 64 * 125**2  # the stem
    assert table.rows("F" * 12)[0].costs["flops"] == by_hand
    assert all(row.costs["flops"] > 0 for row in table.rows("B" * 12))
    assert 0 < binary["flops"] < full["flops"]


# --- loss ---------------------------------------------------------------------------------------


def test_the_loss_of_no_response_is_ln_2_and_both_kinds_of_cell_weigh_the_same() -> None:
    middle = torch.zeros(2, 2)
    assert float(balanced_logistic(torch.zeros(2, 17, 17), middle)) == pytest.approx(np.log(2))
    cells = torch.arange(17) - 8
    near = (cells[:, None].abs() + cells.abs() <= 2).float()  # r_pos 16 / stride 8
    assert int(near.sum()) == 13
    right = 40 * (2 * near - 1)
    assert float(balanced_logistic(right[None], middle[:1])) == pytest.approx(0, abs=1e-6)
    all_negative = torch.full((1, 17, 17), -10.0)
    assert float(balanced_logistic(all_negative, middle[:1])) == pytest.approx(5, abs=1e-3)


def test_the_label_follows_the_target() -> None:
    responses = torch.full((1, 9, 9), -20.0)
    responses[0, 6, 3] = 20.0  # row 6, column 3: two cells down, one to the left
    for cell in ((5, 3), (7, 3), (6, 2), (6, 4)):
        responses[(0, *cell)] = 20.0
    place = torch.tensor([[-1.0, 2.0]]) / 8
    assert float(balanced_logistic(responses, place)) < 1e-6
    assert float(balanced_logistic(responses, -place)) > 1


# --- the tracker --------------------------------------------------------------------------------


def test_a_peak_is_found_where_it_is() -> None:
    responses = torch.zeros(2, 3, 17, 17)
    responses[0, 1, 8, 8] = 10
    responses[1, 2, 4, 10] = 10
    moved, scale = locate(responses)
    assert scale.tolist() == [1, 2]
    np.testing.assert_allclose(moved[0], [0, 0], atol=0.05 / 16)
    # The window pulls it a little to the middle.
    np.testing.assert_allclose(moved[1] * 16, [2, -4], atol=0.2)


def test_other_scales_are_penalised() -> None:
    responses = torch.zeros(1, 3, 9, 9)
    responses[0, :, 4, 4] = torch.tensor([1.0, 0.98, 1.0])
    assert locate(responses)[1].tolist() == [1]
    responses[0, 0, 4, 4] = 1.1
    assert locate(responses)[1].tolist() == [0]


class Perfect(SiamFC):
    """Features that know the target: its colour is red, everything else black."""

    def __init__(self) -> None:
        super().__init__((3, 63, 63), width=1, blocks=1, activation="relu", unit="bi-real")

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        red = (x[:, :1] > 0).float()
        return torch.nn.functional.avg_pool2d(red, 4, 4, padding=0)


def square(frames: int, speed: tuple[float, float], growth: float = 1.0) -> Sequence:
    """A red square on black."""
    pixels = torch.zeros(frames, 3, 120, 120, dtype=torch.uint8)
    boxes = np.zeros((frames, 4))
    for t in range(frames):
        side = 20 * growth**t
        x, y = 40 + speed[0] * t - side / 2, 60 + speed[1] * t - side / 2
        boxes[t] = [round(x), round(y), round(side), round(side)]
        a, b, s = (int(v) for v in boxes[t][:3])
        pixels[t, 0, b : b + s, a : a + s] = 255
    return Sequence("square", boxes, pixels)


def test_the_tracker_follows_a_square_through_the_frames() -> None:
    items = [square(8, (5, 0)), square(6, (0, -4)), square(8, (3, 3))]
    part = Sequences.of(items, DATASETS.get("moving-shapes"))
    tracked = track(Perfect(), part)
    assert [len(boxes) for boxes in tracked] == [8, 6, 8]
    scores = measure([item.boxes for item in items], tracked)
    assert scores.precision == 1.0
    assert scores.auc > 0.6
    for item, boxes in zip(items, tracked, strict=True):
        off = (boxes - item.boxes)[:, :2] + (boxes - item.boxes)[:, 2:] / 2
        assert np.abs(off).max() < 5


def test_side_by_side_is_as_good_as_alone(shapes: Sequences) -> None:
    torch.manual_seed(0)
    model = build_model("siamfc", {"width": 4, "blocks": 1}, (3, 63, 63), 1).eval()
    some = shapes.subset(np.arange(3))
    together = track(model, some)
    for i in range(3):
        (alone,) = track(model, some.subset(np.array([i])))
        np.testing.assert_allclose(alone, together[i], atol=0.5)


def test_overlap_and_otbs_measures_in_closed_form() -> None:
    boxes = np.array([[0.0, 0, 10, 10]] * 3)
    moved = boxes + np.array([[0, 0, 0, 0], [5, 0, 0, 0], [40, 0, 0, 0]])
    assert overlap(boxes, moved).tolist() == pytest.approx([1, 1 / 3, 0])
    # Above 20 of the 21 overlaps 0, 0.05, ..., 1; above 7 of them (0 to 0.30); above none.
    scores = measure([boxes], [moved])
    assert scores.auc == pytest.approx((20 + 7 + 0) / 21 / 3)
    assert scores.precision == pytest.approx(2 / 3)
    hidden = boxes.copy()
    hidden[2] = 0
    assert measure([hidden], [moved]).precision == 1.0


# --- training -----------------------------------------------------------------------------------


def tracking_spec(plan: str, method: str, epochs: int = 3, **task: object) -> TrialSpec:
    fields = {
        "dataset": "moving-shapes",
        "model": {"name": "siamfc", "width": 4, "blocks": 1},
        "epochs": epochs,
        "batch_size": 16,
        "optimizer": {"name": "adam", "lr": 0.01},
        "val_fraction": 0.1,
        "subset": 140,
    }
    return TrialSpec(task=Task.model_validate(fields | task), method=method, plan=plan)


def test_a_tracker_learns_and_its_packed_network_tracks_the_same(tmp_path: Path) -> None:
    spec = tracking_spec("FBBBBB", "bnn")
    training = Training(spec, *search_data(spec.task))
    before = training.kind.evaluate(training.model, training.validation)
    while not training.done:
        after = training.epoch()
    training.network.verify()
    validation: Any = training.validation
    still = [np.repeat(i.boxes[:1], len(i), 0) for i in validation.items]
    nothing_done = measure([i.boxes for i in validation.items], still)
    assert after["val_loss"] < before["val_loss"]
    assert after["val_auc"] > max(before["val_auc"], nothing_done.auc)
    packed.save(training.network, spec, tmp_path / "net.safetensors", {})
    model, loaded, _ = packed.load(tmp_path / "net.safetensors")
    assert loaded.plan == spec.plan
    x = next(iter(in_order(training.validation, 4)))[0]
    training.model.eval()
    assert torch.equal(model(x), training.model(x))
    for one, two in zip(
        track(model, training.validation), track(training.model, training.validation), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_an_interrupted_tracker_continues_identically(tmp_path: Path) -> None:
    spec = tracking_spec("BBBBBB", "bnn++", epochs=2, subset=40)
    data = search_data(spec.task)
    whole, first, second = (Training(spec, *data) for _ in range(3))
    first.epoch()
    save_state(first, tmp_path / "state.pt")
    assert load_state(second, tmp_path / "state.pt")
    second.epoch()
    while not whole.done:
        whole.epoch()
    for name in ("train_loss", "val_loss", "val_auc", "val_precision", "val_auc_raw"):
        assert [row.get(name) for row in second.history] == [row.get(name) for row in whole.history]


def test_regions_are_normalised_as_the_task_asks() -> None:
    plain, imagenet = (load_train("moving-shapes", None, n) for n in ("dataset", "imagenet"))
    (_, x), _ = next(iter(in_order(plain, 4)))
    (_, same), _ = next(iter(in_order(imagenet, 4)))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
    torch.testing.assert_close(same, (x * 0.2 + 0.5 - mean) / std)
    assert data_digest(plain) != data_digest(imagenet)


def test_the_gradient_of_a_layer_used_twice_is_that_of_both_uses() -> None:
    spec = tracking_spec("BBBBBB", "bnn", subset=24)
    scoring = Scoring(SelectionSpec(selector="mixbin-grad", task=spec.task))
    net = Switchable(Network(spec))
    for index in range(scoring.layers):
        net.set(index, False)
    batches = list(in_order(scoring.examples(8), 8))
    gradients = net.gradients(batches, scoring.loss)
    ((x, y),) = batches
    latents = [layer.latent for layer in net.layers]
    expected = torch.autograd.grad(balanced_logistic(net.model(x), y), latents)
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_soft_tracker_starts_from_a_shared_stage_and_tells_its_gap(tmp_path: Path) -> None:
    spec = tracking_spec("BBBBBB", "bnn++", epochs=2, subset=24, pretrain=1)
    cache = PretrainedCache(tmp_path)
    training = Training(spec, *search_data(spec.task), pretrained=cache)
    training.epoch()
    last = training.epoch()
    assert last["soft_gap"] == last["acc_soft"] - last["val_auc"]
    assert "soft_gap" in training.history[0]
    before = pretraining_spec(spec)
    assert before is not None
    assert cache.path(before, training.train).exists()


def test_kinds_declare_what_they_measure() -> None:
    for name, kind in KINDS.items():
        assert kind.name == name
        assert "val_loss" in [metric.name for metric in kind.metrics]
        assert all(metric.name.startswith("val_") for metric in kind.metrics)
    assert kind_of("moving-shapes").quality.name == "val_auc"
    assert kind_of("digits").quality.name == "val_accuracy"
    info = DATASETS.get("digits")
    assert kind_of("digits").chance("val_accuracy", info) == 0.1
    assert kind_of("digits").chance("val_loss", info) == pytest.approx(np.log(10))
