"""Claims about images in folders: every layout is read, parts never mix, small sets are in memory
and large ones are streamed with the same pixels, and augmentation is what it says."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bitfront.cli import main
from bitfront.search.config import load as loading
from bitfront.search.config.load import load_text
from bitfront.search.recipes.recipe import FinalSettings, Recipe, save_recipe
from bitfront.trainables.data import (
    DATASETS,
    Arrays,
    Batches,
    Streamed,
    folders,
    in_order,
    load_test,
    load_train,
    missing_test,
)
from bitfront.trainables.data import datasets as datasets_module
from bitfront.trainables.data.augmentations import affine_flip, crop_boxes, resized_crop_flip
from bitfront.trainables.data.streams import decode
from bitfront.trainables.errors import UserError
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.training.pretraining import data_digest

CLASSES = ("ant", "bee", "cow")


@pytest.fixture(autouse=True)
def _nothing_cached_from_other_tests() -> Iterator[None]:
    datasets_module._read.cache_clear()
    yield
    datasets_module._read.cache_clear()


def write_image(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (12, 12)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def write_folder(root: Path, test: str = "test", each: int = 8) -> Path:
    """Three classes; the red of a training image is its class, test images are blue."""
    for label, name in enumerate(CLASSES):
        for i in range(each):
            write_image(root / "train" / name / f"{i}.png", (50 * label, i, 0))
        for i in range(2):
            write_image(root / test / name / f"{i}.png", (0, 0, 250))
    return root


def write_tiny_imagenet(root: Path, classes: int = 200) -> Path:
    """The archive's own layout: images one folder deeper, classes of `val` in a text file."""
    names = [f"n{i:08d}" for i in range(classes)]
    for name in names:
        write_image(root / "train" / name / "images" / f"{name}_0.JPEG", (9, 9, 9), (64, 64))
    for i in range(classes):
        write_image(root / "val" / "images" / f"val_{i}.JPEG", (200, 9, 9), (64, 64))
    lines = [f"val_{i}.JPEG\t{name}\t0\t0\t5\t5\n" for i, name in enumerate(reversed(names))]
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    (root / "test" / "images").mkdir(parents=True)
    return root


def pixels(x: torch.Tensor, name: str) -> torch.Tensor:
    info = DATASETS.get(name)
    shape = (1, 3, 1, 1)
    return (x * torch.tensor(info.std).view(shape) + torch.tensor(info.mean).view(shape)) * 255


# --- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["test", "val"])
def test_a_folder_of_ones_own_is_read_and_resized(test: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "zoo", test)
    name = DATASETS.settle("folder:zoo:8", tmp_path)
    assert name == "folder:zoo:8:3"
    info = DATASETS.get(name)
    assert (info.shape, info.classes) == ((3, 8, 8), 3)
    train = load_train(name, tmp_path)
    assert isinstance(train, Arrays)
    assert train.x.shape == (24, 3, 8, 8)
    assert train.y.bincount().tolist() == [8, 8, 8]
    red = pixels(train.x, name)[:, 0].mean((1, 2))
    torch.testing.assert_close(red, 50.0 * train.y, atol=0.01, rtol=0)
    held = load_test(name, tmp_path)
    assert held.y.tolist() == [0, 0, 1, 1, 2, 2]
    assert (pixels(held.x, name)[:, 2] > 249).all()


def test_training_opens_no_test_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "zoo")
    opened: list[str] = []
    real = Image.open

    def recording(file: str) -> Image.Image:
        opened.append(str(file))
        return real(file)

    monkeypatch.setattr(Image, "open", recording)
    load_train("folder:zoo:8:3", tmp_path)
    assert len(opened) == 24
    assert not [file for file in opened if "/test/" in file]


def test_the_square_in_the_middle_of_a_wide_image_is_kept(tmp_path: Path) -> None:
    wide = np.zeros((10, 30, 3), dtype=np.uint8)
    wide[:, 10:20] = 200
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert (decode(tmp_path / "wide.png", 10) == 200).all()
    grey = Image.new("L", (10, 10), 7)
    grey.save(tmp_path / "grey.png")
    assert decode(tmp_path / "grey.png", 5).tolist() == [[[7] * 5] * 5] * 3


def test_tiny_imagenets_own_validation_layout_is_the_test_part(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path / "tiny-imagenet-200")
    assert load_train("tiny-imagenet", tmp_path).y.tolist() == list(range(200))
    test = load_test("tiny-imagenet", tmp_path)
    assert test.x.shape == (200, 3, 64, 64)
    assert test.y.tolist() == list(reversed(range(200)))


def test_another_number_of_classes_is_refused_with_the_way_out(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path / "tiny-imagenet-200", classes=20)
    with pytest.raises(UserError, match=r"has 200 classes, .*train has 20") as caught:
        load_train("tiny-imagenet", tmp_path)
    assert "folder:tiny-imagenet-200:64" in str(caught.value.hint)
    name = DATASETS.settle("folder:tiny-imagenet-200:64", tmp_path)
    assert len(load_train(name, tmp_path)) == 20


def test_imagenet100_is_the_first_100_classes_of_imagenet(tmp_path: Path) -> None:
    """The list of the Continuum library goes from n01440764 to n01855672; n01860187 comes next."""
    between = [f"n{number:08d}" for number in range(1_443_537, 1_443_537 + 98)]
    names = ["n01440764", *between, "n01855672", "n01860187", "n02000000"]
    for part in ("train", "val"):
        for name in names:
            write_image(tmp_path / "imagenet" / part / name / "0.JPEG", (0, 0, 0))
    for load in (load_train, load_test):
        images = load("imagenet100", tmp_path)
        assert images.y.tolist() == list(range(100))
        assert tuple(images.x.shape[1:]) == (3, 224, 224)
    shutil.rmtree(tmp_path / "imagenet" / "train" / between[7])
    datasets_module._read.cache_clear()
    with pytest.raises(UserError, match=r"has 100 classes up to n01855672, .*train has 99"):
        load_train("imagenet100", tmp_path)


@pytest.mark.parametrize(
    "name", ["tiny-imagenet", "tiny-imagenet-20", "imagenet", "imagenet100", "folder:zoo:8:3"]
)
def test_missing_folders_say_where_and_how(name: str, tmp_path: Path) -> None:
    for load in (load_train, load_test):
        with pytest.raises(UserError, match="not found: looked for") as caught:
            load(name, tmp_path)
        assert str(tmp_path) in caught.value.message
        assert str(tmp_path) in str(caught.value.hint)
    with pytest.raises(UserError, match="not found: looked for"):
        DATASETS.settle("folder:zoo:8", tmp_path)


@pytest.mark.parametrize("name", ["folder:", "folder:zoo:big", "folder:zoo:8:3:1", "folder:zoo:0"])
def test_a_folder_name_that_says_nothing_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="write folder:NAME:SIZE"):
        DATASETS.settle(name, tmp_path)


def test_a_damaged_image_and_an_unknown_class_are_named(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "zoo")
    write_image(root / "test" / "dog" / "0.png", (0, 0, 0))
    with pytest.raises(UserError, match="class 'dog' is not among"):
        load_test("folder:zoo:8:3", tmp_path)
    (root / "train" / "bee" / "3.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"bee/3.png: not an image"):
        load_train("folder:zoo:8:3", tmp_path)


def test_a_search_counts_the_classes_once_and_keeps_the_number(tmp_path: Path) -> None:
    write_folder(tmp_path / "zoo")
    text = (
        "task: {dataset: 'folder:zoo:8', model: {name: cresnet, depth: 8, width: 2}}\n"
        "space: {method: bnn, plan: {per: layer}}\n"
    )
    where = f"task.data_dir={tmp_path}"
    config, _ = load_text(text, "zoo.yaml", [where])
    assert config.task.dataset == "folder:zoo:8:3"
    plan = "space.plan={selector: hawq, budget: 50, trained_on: {dataset: 'folder:zoo:8'}}"
    (using,) = load_text(text, "zoo.yaml", [where, plan])[1].selecting()
    assert using.task(config.task).dataset == "folder:zoo:8:3"
    with pytest.raises(UserError, match=r"zoo.yaml:1 task.dataset: .*not found: looked for"):
        load_text(text, "zoo.yaml", [f"task.data_dir={tmp_path / 'else'}"])


# --- streams ------------------------------------------------------------------------------------


@pytest.fixture
def streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Streamed:
    write_folder(tmp_path / "zoo")
    monkeypatch.setattr(folders, "IN_MEMORY_BYTES", 24 * 3 * 8 * 8 * 4 - 1)
    part = load_train("folder:zoo:8:3", tmp_path)
    assert isinstance(part, Streamed)
    return part


def test_at_the_threshold_data_are_in_memory_and_just_above_streamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "zoo")
    for spare, kind in ((0, Arrays), (-1, Streamed)):
        datasets_module._read.cache_clear()
        monkeypatch.setattr(folders, "IN_MEMORY_BYTES", 24 * 3 * 8 * 8 * 4 + spare)
        assert type(load_train("folder:zoo:8:3", tmp_path)) is kind


@pytest.mark.parametrize("augmentation", ["none", "crop-flip", "affine-flip"])
def test_a_stream_gives_the_batches_that_memory_gives(
    augmentation: str, streamed: Streamed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "IN_MEMORY_BYTES", 1 << 30)
    datasets_module._read.cache_clear()
    arrays = load_train("folder:zoo:8:3", tmp_path)
    both = (Batches(part, 5, 3, augmentation) for part in (streamed, arrays))
    for (x, y), (same_x, same_y) in zip(*both, strict=True):
        assert torch.equal(x, same_x)
        assert torch.equal(y, same_y)
    assert torch.equal(torch.cat([x for x, _ in in_order(streamed, 7)]), arrays.x)


def test_a_stream_is_normalised_and_known_as_memory_is(
    streamed: Streamed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With statistics of its own, which are not those the task asks for."""
    own = replace(streamed.info, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    monkeypatch.setattr(DATASETS, "get", lambda name: own)
    stream = load_train("folder:zoo:8:3", tmp_path, "imagenet")
    monkeypatch.setattr(folders, "IN_MEMORY_BYTES", 1 << 30)
    datasets_module._read.cache_clear()
    arrays = load_train("folder:zoo:8:3", tmp_path, "imagenet")
    plain = load_train("folder:zoo:8:3", tmp_path)
    assert torch.equal(torch.cat([x for x, _ in in_order(stream, 7)]), arrays.x)
    assert not torch.equal(arrays.x, plain.x)
    assert data_digest(stream) == data_digest(arrays) != data_digest(plain)


def test_a_resumed_stream_crops_alike_whatever_the_workers(
    streamed: Streamed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_rng_state()
    whole, resumed = (Batches(streamed, 6, seed, "resized-crop-flip") for seed in (1, 2))
    first = list(whole)
    resumed.load_state_dict(whole.state_dict())
    second = list(whole)
    monkeypatch.setattr("bitfront.trainables.data.streams.stream_workers", lambda: 2)
    for (x, y), (same_x, same_y) in zip(second, resumed, strict=True):
        assert torch.equal(x, same_x)
        assert torch.equal(y, same_y)
    assert not torch.equal(first[0][0], second[0][0])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_network_trains_on_a_stream(streamed: Streamed, tmp_path: Path) -> None:
    model = {"name": "cresnet", "depth": 8, "width": 4}
    task = Task(dataset="folder:zoo:8:3", model=model, epochs=2, batch_size=6)
    task.data_dir = str(tmp_path)
    spec = TrialSpec(task=task, method="bnn", plan="BBBBBB")
    training = Training(spec, *search_data(task))
    assert isinstance(training.train, Streamed)
    assert len(training.train) + len(training.validation) == 24
    while not training.done:
        training.epoch()
    training.network.verify()


# --- augmentation -------------------------------------------------------------------------------


def gradient(n: int, height: int = 32, width: int = 32) -> torch.Tensor:
    """Images whose pixels are their own place: (x, y), both in [-1, 1]."""
    x = (torch.arange(width) + 0.5) * 2 / width - 1
    y = (torch.arange(height) + 0.5) * 2 / height - 1
    return torch.stack([x.expand(height, width), y[:, None].expand(height, width)]).repeat(
        n, 1, 1, 1
    )


def centre_map(made: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the middle of each image came from, and how it was turned and scaled there."""
    height, width = made.shape[2:]
    h, w = height // 2, width // 2
    middle = made[:, :, h - 1 : h + 1, w - 1 : w + 1]
    across = (middle[..., 1] - middle[..., 0]).mean(2) * width / 2
    down = (middle[:, :, 1] - middle[:, :, 0]).mean(2) * height / 2
    return middle.mean((2, 3)), torch.stack([across, down], 2)


def test_affine_flip_stays_in_its_ranges_and_reaches_them() -> None:
    made = affine_flip(gradient(2000), torch.Generator().manual_seed(0))
    shift, matrix = centre_map(made)
    zoom = 1 / matrix.det().abs().sqrt()
    mirrored = matrix.det() < 0
    angle = torch.atan2(matrix[:, 0, 1], matrix[:, 1, 1]).abs() * 180 / math.pi
    assert 0.9 - 1e-3 < zoom.min() < 0.905
    assert 1.095 < zoom.max() < 1.1 + 1e-3
    assert 14.8 < angle.max() < 15.01
    assert 0.19 < shift.abs().max() < 0.201
    assert 900 < mirrored.sum() < 1100


def test_a_turn_of_an_oblong_image_keeps_right_angles() -> None:
    """In pixels, not in shares of the sides."""
    made = affine_flip(gradient(50, height=16, width=48), torch.Generator().manual_seed(0))
    _, matrix = centre_map(made)
    pixels = matrix * torch.tensor([[1.0, 16 / 48], [48 / 16, 1.0]]).reciprocal()
    dot = (pixels[:, :, 0] * pixels[:, :, 1]).sum(1)
    torch.testing.assert_close(dot, torch.zeros(50), atol=1e-3, rtol=0)


def test_resized_crops_are_the_boxes_that_were_drawn() -> None:
    made = resized_crop_flip(gradient(40), torch.Generator().manual_seed(5))
    left, top, across, down, mirrored = crop_boxes(40, 32, 32, torch.Generator().manual_seed(5))
    shift, matrix = centre_map(made)
    torch.testing.assert_close(shift[:, 0], (2 * left + across) / 32 - 1, atol=1e-4, rtol=0)
    torch.testing.assert_close(shift[:, 1], (2 * top + down) / 32 - 1, atol=1e-4, rtol=0)
    torch.testing.assert_close(matrix[:, 0, 0].abs(), across / 32, atol=1e-3, rtol=0)
    torch.testing.assert_close(matrix[:, 1, 1], down / 32, atol=1e-3, rtol=0)
    assert ((matrix[:, 0, 0] < 0) == mirrored).all()


def test_crop_boxes_lie_inside_and_have_the_sizes_of_the_recipe() -> None:
    left, top, across, down, mirrored = crop_boxes(5000, 30, 40, torch.Generator().manual_seed(1))
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (left + across <= 40 + 1e-3).all()
    assert (top + down <= 30 + 1e-3).all()
    free = (across < 40) & (down < 30)  # those that were not narrowed to fit
    share, ratio = across * down / 1200, across / down
    assert 0.08 - 1e-4 <= share.min() < 0.085
    assert ratio[free].min() >= 3 / 4 - 1e-4
    assert ratio[free].max() <= 4 / 3 + 1e-4
    assert 2300 < mirrored.sum() < 2700


@pytest.mark.skipif(not os.environ.get("BITFRONT_DATA"), reason="BITFRONT_DATA is not set")
def test_the_real_sample_is_the_same_as_a_folder_of_ones_own() -> None:
    try:
        named = load_test("tiny-imagenet-20")
    except UserError as error:
        pytest.skip(error.message)
    own = load_test(DATASETS.settle("folder:tiny-imagenet-20:64", None))
    assert torch.equal(named.y, own.y)
    torch.testing.assert_close(
        pixels(named.x, "tiny-imagenet-20"), pixels(own.x, "folder:x:64:20"), atol=1e-2, rtol=0
    )


# --- a test part --------------------------------------------------------------------------------


def test_data_without_a_test_part_are_noticed_before_they_are_needed(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "birds")
    assert missing_test("folder:birds:8:3", tmp_path) is None
    for name in CLASSES:
        shutil.rmtree(root / "test" / name)
    told = missing_test("folder:birds:8:3", tmp_path)
    assert told is not None
    assert str(root / "test") in told
    assert str(root / "val") in told
    write_image(root / "val" / "ant" / "0.png", (0, 0, 1))
    assert missing_test("folder:birds:8:3", tmp_path) is None
    # Where the data themselves are missing, that is told elsewhere.
    assert missing_test("folder:birds:8:3", tmp_path / "nowhere") is None
    assert missing_test("folder:birds:8:3") is None


def test_files_of_the_other_part_are_missed_too(tmp_path: Path) -> None:
    for name, folder, file in (
        ("mnist", "MNIST/raw", "t10k-images-idx3-ubyte"),
        ("permuted-mnist", "MNIST/raw", "t10k-images-idx3-ubyte"),
        ("fashion-mnist", "FashionMNIST/raw", "t10k-labels-idx1-ubyte.gz"),
        ("cifar10", "cifar-10-batches-py", "test_batch"),
        ("cifar100", "cifar-100-python", "test"),
        ("got10k", "got10k/train", "../../otb/one/groundtruth.txt"),
        ("sequences:mine", "mine/train", "../test/one/groundtruth_rect.txt"),
    ):
        where = tmp_path / folder
        where.mkdir(parents=True, exist_ok=True)
        (where / file).unlink(missing_ok=True)
        assert missing_test(name, tmp_path) is not None, name
        (where / file).parent.mkdir(parents=True, exist_ok=True)
        (where / file).touch()
        assert missing_test(name, tmp_path) is None, name
    assert missing_test("digits") is None


def test_a_search_warns_of_it_and_final_training_says_so_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(write_folder(tmp_path / "data" / "birds") / "test")
    text = (
        "task: {dataset: 'folder:birds:8', model: {name: mlp, depth: 3, width: 4}, subset: 99}\n"
        "space: {method: bnn, plan: {per: layer}}\n"
    )
    (tmp_path / "s.yaml").write_text(text)
    data = ["--data-dir", str(tmp_path / "data")]
    assert main(["validate", str(tmp_path / "s.yaml"), *data]) == 0
    warnings = " ".join(capsys.readouterr().err.split())
    assert "warning: folder:birds:8:3 has no test part: no images in" in warnings
    assert "99 examples of folder:birds:8:3, which has 24" in warnings
    task = {"dataset": "folder:birds:8:3", "model": "mlp"}
    spec = TrialSpec(task=Task.model_validate(task), plan="FF")
    final = FinalSettings(epochs=1, seeds=[0])
    expected = {"val_accuracy": 0.5, "flops": 1.0}
    save_recipe(Recipe(name="x", spec=spec, final=final, expected=expected), tmp_path / "r.yaml")
    assert main(["train", str(tmp_path / "r.yaml"), *data]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: final training needs a test part: no images in")
    assert len(captured.err.splitlines()) == 1
    assert not (tmp_path / "r-trained").exists()


# --- at any path, with or without a test part ---------------------------------------------------


def flat_folder(root: Path, each: int = 10) -> Path:
    for label, name in enumerate(CLASSES):
        for i in range(each):
            write_image(root / name / f"{i}.png", (50 * label, i, 0))
    return root


def test_a_folder_may_be_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BITFRONT_DATA", raising=False)
    birds = write_folder(tmp_path / "birds")
    monkeypatch.chdir(tmp_path)
    settled = f"folder:{birds}:12:3"
    for name in (f"folder:{birds}:12", "folder:./birds:12", "folder:birds:12"):
        assert DATASETS.settle(name, None) == settled
    assert len(load_train(settled)) == 24
    assert missing_test(settled) is None
    shutil.rmtree(birds / "test")
    assert missing_test(settled) is not None


def test_a_folder_beside_the_yaml_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BITFRONT_DATA", raising=False)
    write_folder(tmp_path / "birds")
    file = tmp_path / "s.yaml"
    file.write_text(
        "task: {dataset: 'folder:./birds:12', model: mlp}\nspace: {method: bnn, plan: B}\n"
    )
    config, _ = loading.load(file)
    assert config.task.dataset == f"folder:{tmp_path}/birds:12:3"


def test_classes_without_a_test_part_are_split_the_same_way_each_time(tmp_path: Path) -> None:
    root = flat_folder(tmp_path / "birds")
    name = DATASETS.settle(f"folder:{root}:12", None)
    assert name == f"folder:{root}:12:3:flat"
    train, test = load_train(name), load_test(name)
    assert (len(train), len(test)) == (24, 6)
    assert test.y.bincount().tolist() == [2, 2, 2]
    seen = {tuple(x.flatten().tolist()) for x in train.x}
    assert not any(tuple(x.flatten().tolist()) in seen for x in test.x)
    datasets_module._read.cache_clear()
    assert load_test(name).x.equal(test.x)
    assert missing_test(name) is None


def test_the_split_of_a_folder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = flat_folder(tmp_path / "birds")
    assert main(["datasets", f"folder:{root}:12"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "3x12x12, 3 classes 24 training examples" in said
    assert "20% of all images set aside for the test" in said
