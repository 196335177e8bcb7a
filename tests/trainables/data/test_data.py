"""Claims about data: parts never mix, seeds decide everything, missing files say what to do,
and every registered dataset is what its declaration says."""

from __future__ import annotations

import builtins
import hashlib
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfront.trainables.data import (
    AUGMENTATIONS,
    DATASETS,
    Arrays,
    Batches,
    in_order,
    load_test,
    load_train,
    pixel_statistics,
    split,
)
from bitfront.trainables.data import datasets as datasets_module
from bitfront.trainables.data.augmentations import crop_flip
from bitfront.trainables.errors import UserError

REAL_DATA = os.environ.get("BITFRONT_DATA")


@pytest.fixture(autouse=True)
def _nothing_cached_from_other_tests() -> Iterator[None]:
    datasets_module._read.cache_clear()
    yield
    datasets_module._read.cache_clear()


def numbered(n: int, classes: int = 3) -> Arrays:
    """Examples that carry their own index, with uneven classes."""
    index = torch.arange(n)
    return Arrays(index.float().view(n, 1), (index * index) % classes)


def ids(arrays: Arrays) -> list[int]:
    return arrays.x.flatten().int().tolist()


def epoch_ids(batches: Batches) -> list[list[int]]:
    return [x.flatten().int().tolist() for x, _ in batches]


# --- small files in torchvision's layout --------------------------------------------------------


def write_idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">I{values.ndim}I", 0x0800 + values.ndim, *values.shape)
    path.write_bytes(header + values.astype(np.uint8).tobytes())


def write_mnist(root: Path, folder: str = "MNIST") -> Path:
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    for part, n, grey in (("train", 20, 10), ("t10k", 6, 200)):
        write_idx(raw / f"{part}-images-idx3-ubyte", np.full((n, 28, 28), grey))
        write_idx(raw / f"{part}-labels-idx1-ubyte", np.arange(n) % 10)
    return raw


def write_cifar(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A few pictures, red in the training part and blue in the test part, checksums patched in."""
    ten = name == "CIFAR10"
    whole: Any = getattr(torchvision.datasets, name)
    folder = root / whole.base_folder
    folder.mkdir(parents=True)

    def write(file: str, content: dict[str, Any]) -> str:
        data = pickle.dumps(content)
        (folder / file).write_bytes(data)
        return hashlib.md5(data).hexdigest()

    def batch(n: int, channel: int) -> dict[str, Any]:
        pixels = np.zeros((n, 3, 32, 32), dtype=np.uint8)
        pixels[:, channel] = 255
        labels = [i % whole_classes for i in range(n)]
        return {"data": pixels.reshape(n, -1), "labels" if ten else "fine_labels": labels}

    whole_classes = 10 if ten else 100
    train = ["data_batch_1", "data_batch_2"] if ten else ["train"]
    test = "test_batch" if ten else "test"
    meta_key = "label_names" if ten else "fine_label_names"
    meta_file = whole.meta["filename"]
    monkeypatch.setattr(whole, "train_list", [[f, write(f, batch(10, 0))] for f in train])
    monkeypatch.setattr(whole, "test_list", [[test, write(test, batch(4, 2))]])
    meta_md5 = write(meta_file, {meta_key: [str(i) for i in range(whole_classes)]})
    monkeypatch.setattr(whole, "meta", {"filename": meta_file, "key": meta_key, "md5": meta_md5})
    return folder


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are opened while the test runs."""
    names: list[str] = []
    real_open = builtins.open

    def recording_open(file: Any, *args: Any, **kwargs: Any) -> Any:
        names.append(Path(file).name if isinstance(file, str | os.PathLike) else str(file))
        return real_open(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", recording_open)
    return names


# --- every registered dataset -------------------------------------------------------------------


def load_or_skip(name: str, part: str) -> Arrays:
    if not DATASETS.get(name).embedded and not REAL_DATA:
        pytest.skip("BITFRONT_DATA is not set")
    try:
        return load_train(name) if part == "train" else load_test(name)
    except UserError as error:
        if "not found" not in error.message:
            raise
        pytest.skip(error.message)


CLASSIFICATION = [name for name in DATASETS if DATASETS.get(name).kind == "classification"]


@pytest.mark.parametrize("name", DATASETS)
def test_declaration_is_consistent(name: str) -> None:
    info = DATASETS.get(name)
    assert info.name == name
    assert len(info.mean) == len(info.std) == info.shape[0]
    assert info.augmentation in AUGMENTATIONS
    assert info.source.endswith(".")
    assert info.embedded or "DIR" in info.get_hint


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("name", CLASSIFICATION)
def test_dataset_is_what_its_declaration_says(name: str, part: str) -> None:
    info = DATASETS.get(name)
    arrays = load_or_skip(name, part)
    assert len(arrays) == (info.train_size if part == "train" else info.test_size)
    assert arrays.x.shape == (len(arrays), *info.shape)
    assert (arrays.x.dtype, arrays.y.dtype) == (torch.float32, torch.int64)
    assert arrays.x.is_contiguous()
    assert arrays.y.unique().tolist() == list(range(info.classes))


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_training_part_is_normalised(name: str) -> None:
    channels = load_or_skip(name, "train").x.transpose(0, 1).flatten(1).double()
    torch.testing.assert_close(
        channels.mean(1), torch.zeros(len(channels)).double(), atol=2e-3, rtol=0
    )
    torch.testing.assert_close(
        channels.std(1), torch.ones(len(channels)).double(), atol=2e-3, rtol=0
    )


@pytest.mark.parametrize("name", ["digits", "moons"])
def test_no_example_of_an_embedded_dataset_is_in_both_parts(name: str) -> None:
    info = DATASETS.get(name)
    rows = {
        part: {tuple(x) for x in arrays.x.flatten(1).tolist()}
        for part, arrays in (("train", load_train(name)), ("test", load_test(name)))
    }
    assert not rows["train"] & rows["test"]
    assert len(rows["train"]) + len(rows["test"]) == info.train_size + info.test_size


def test_which_digits_are_test_digits_never_changes() -> None:
    """Accuracies of two versions are comparable only on the same test part."""
    digest = hashlib.sha256(load_test("digits").y.numpy().tobytes()).hexdigest()
    assert digest[:16] == "21bb8b86e81d5768"


def test_listing_datasets_imports_no_heavy_library() -> None:
    code = (
        "import sys; from bitfront.trainables.data import DATASETS; DATASETS.names();"
        "print([m for m in ('torch', 'torchvision', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- split and subset ---------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    labels=st.lists(st.integers(0, 6), min_size=4, max_size=120),
    fraction=st.floats(0.15, 0.85),
    seed=st.integers(0, 2**32),
)
def test_split_is_disjoint_complete_and_stratified(
    labels: list[int], fraction: float, seed: int
) -> None:
    y = torch.tensor(labels)
    everything = Arrays(torch.arange(len(y)).float().view(-1, 1), y)
    train, val = split(everything, fraction, seed)
    assert sorted(ids(train) + ids(val)) == list(range(len(y)))
    assert len(val) == round(len(y) * fraction)
    for part in (train, val):
        assert part.y.tolist() == y[ids(part)].tolist()
    for label in set(labels):
        ideal = labels.count(label) * len(val) / len(labels)
        assert abs(int((val.y == label).sum()) - ideal) < 1


def test_split_depends_on_the_seed_and_on_nothing_else() -> None:
    arrays = numbered(200)
    np.random.seed(1)  # noqa: NPY002 - the global state is what must not matter
    first = split(arrays, 0.2, seed=5)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)
    again = split(arrays, 0.2, seed=5)
    other = split(arrays, 0.2, seed=6)
    assert ids(first[0]) == ids(again[0])
    assert ids(first[1]) == ids(again[1])
    assert ids(first[1]) != ids(other[1])


def test_split_is_the_same_on_every_machine() -> None:
    assert ids(split(numbered(30), 0.2, seed=0)[1]) == [2, 3, 11, 13, 20, 21]


@pytest.mark.parametrize("fraction", [0.0, 1.0, 1.5, -0.2, 0.001])
def test_a_split_with_an_empty_part_is_refused(fraction: float) -> None:
    with pytest.raises(UserError, match="val_fraction"):
        split(numbered(20), fraction, seed=0)


def test_take_keeps_the_class_proportions_and_is_seeded() -> None:
    arrays = numbered(300)
    some = arrays.take(60, seed=1)
    assert len(set(ids(some))) == 60
    assert some.y.bincount().tolist() == [20, 40]
    assert ids(some) == ids(arrays.take(60, seed=1))
    assert ids(some) != ids(arrays.take(60, seed=2))
    assert len(arrays.take(300, seed=1)) == 300


@pytest.mark.parametrize("n", [0, -1, 21])
def test_take_of_more_than_there_is_is_refused(n: int) -> None:
    with pytest.raises(UserError, match=f"cannot take {n} examples of 20"):
        numbered(20).take(n, seed=0)


# --- files --------------------------------------------------------------------------------------

MNIST_LAYOUT = [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")]
CIFAR_LAYOUT = [("cifar10", "CIFAR10"), ("cifar100", "CIFAR100")]


@pytest.mark.parametrize(("name", "folder"), MNIST_LAYOUT)
def test_mnist_training_opens_no_test_file(
    name: str, folder: str, tmp_path: Path, opened: list[str]
) -> None:
    raw = write_mnist(tmp_path, folder)
    assert load_train(name, tmp_path).x.shape == (20, 1, 28, 28)
    assert "train-images-idx3-ubyte" in opened
    assert not [file for file in opened if file.startswith("t10k")]
    test = load_test(name, tmp_path)
    assert test.y.tolist() == list(range(6))
    assert test.x.mean() > load_train(name, tmp_path).x.mean()

    datasets_module._read.cache_clear()
    for file in raw.glob("t10k*"):
        file.unlink()
    assert len(load_train(name, tmp_path)) == 20
    with pytest.raises(UserError, match="incomplete or damaged"):
        load_test(name, tmp_path)


@pytest.mark.parametrize(("name", "torchvision_name"), CIFAR_LAYOUT)
def test_cifar_training_opens_no_test_file(
    name: str,
    torchvision_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened: list[str],
) -> None:
    folder = write_cifar(tmp_path, torchvision_name, monkeypatch)
    opened.clear()
    train = load_train(name, tmp_path)
    assert any(file in opened for file in ("data_batch_1", "train"))
    assert not {"test", "test_batch"} & set(opened)
    assert train.x.shape[1:] == (3, 32, 32)
    assert (train.x[:, 0] > 0).all()  # red: the channels are in their place
    assert (train.x[:, 1:] < 0).all()
    assert (load_test(name, tmp_path).x[:, 2] > 0).all()

    datasets_module._read.cache_clear()
    next(folder.glob("test*")).unlink()
    assert len(load_train(name, tmp_path)) == len(train)
    with pytest.raises(UserError, match="incomplete or damaged"):
        load_test(name, tmp_path)


def test_pixels_are_scaled_and_normalised_once(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    x = load_train("mnist", tmp_path).x
    torch.testing.assert_close(x, torch.full_like(x, (10 / 255 - 0.1307) / 0.3081))


def test_files_are_read_once_and_what_is_handed_out_is_the_callers_own(
    tmp_path: Path, opened: list[str]
) -> None:
    write_mnist(tmp_path)
    first = load_train("mnist", tmp_path)
    expected = first.x.clone(), first.y.clone()
    first.x.zero_()
    first.y.zero_()
    opened.clear()
    second = load_train("mnist", str(tmp_path / "." / ""))
    assert not [file for file in opened if "ubyte" in file]
    assert torch.equal(second.x, expected[0])
    assert torch.equal(second.y, expected[1])

    digits = load_train("digits")
    kept = digits.x.clone()
    digits.x.zero_()
    assert torch.equal(load_train("digits").x, kept)


@pytest.mark.parametrize(
    ("name", "folder", "torchvision_name"),
    [
        ("mnist", "MNIST/raw", "MNIST"),
        ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST"),
        ("cifar10", "cifar-10-batches-py", "CIFAR10"),
        ("cifar100", "cifar-100-python", "CIFAR100"),
    ],
)
def test_missing_data_says_where_it_looked_and_how_to_get_it(
    name: str, folder: str, torchvision_name: str, tmp_path: Path
) -> None:
    for load in (load_train, load_test):
        with pytest.raises(UserError) as caught:
            load(name, tmp_path)
        assert str(tmp_path / folder) in caught.value.message
        command = f"torchvision.datasets.{torchvision_name}('{tmp_path}', download=True)"
        assert caught.value.hint is not None
        assert command in caught.value.hint
    assert not list(tmp_path.iterdir())  # nothing is made or downloaded


def test_a_dataset_that_arrives_later_is_found(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not found"):
        load_train("mnist", tmp_path)
    write_mnist(tmp_path)
    assert len(load_train("mnist", tmp_path)) == 20


def test_without_a_data_directory_the_error_names_both_ways_to_give_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BITFRONT_DATA", raising=False)
    with pytest.raises(UserError) as caught:
        load_train("cifar10")
    assert "cifar10" in caught.value.message
    assert "--data-dir DIR" in str(caught.value.hint)
    assert "BITFRONT_DATA" in str(caught.value.hint)


def test_the_argument_wins_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "here")
    monkeypatch.setenv("BITFRONT_DATA", str(tmp_path / "elsewhere"))
    assert len(load_train("mnist", tmp_path / "here")) == 20
    with pytest.raises(UserError, match="elsewhere"):
        load_train("mnist")
    monkeypatch.setenv("BITFRONT_DATA", str(tmp_path / "here"))
    assert len(load_train("mnist")) == 20


@pytest.mark.parametrize("keep", [0, 3, 10, 5000])
def test_a_truncated_mnist_file_is_a_user_error(keep: int, tmp_path: Path) -> None:
    raw = write_mnist(tmp_path)
    file = raw / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(UserError, match="incomplete or damaged") as caught:
        load_train("mnist", tmp_path)
    assert str(raw) in caught.value.message
    assert "download=True" in str(caught.value.hint)


def test_mnist_images_without_their_labels_are_a_user_error(tmp_path: Path) -> None:
    write_idx(write_mnist(tmp_path) / "train-labels-idx1-ubyte", np.zeros(19))
    with pytest.raises(UserError, match="20 images but 19 labels"):
        load_train("mnist", tmp_path)


def test_a_changed_cifar_file_is_a_user_error_and_is_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_cifar(tmp_path, "CIFAR10", monkeypatch)
    marker = tmp_path / "unpickled"
    (folder / "data_batch_2").write_bytes(pickle.dumps(_TouchWhenUnpickled(marker)))
    with pytest.raises(UserError, match="incomplete or damaged") as caught:
        load_train("cifar10", tmp_path)
    assert str(folder) in caught.value.message
    assert not marker.exists()


class _TouchWhenUnpickled:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Path.touch, (self.marker,)


def test_an_unknown_dataset_gets_a_suggestion() -> None:
    with pytest.raises(UserError, match="unknown dataset 'cifar-10', did you mean 'cifar10'"):
        load_train("cifar-10")


# --- batches ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=80)
@given(n=st.integers(2, 70), batch_size=st.integers(2, 80), drop_last=st.booleans())
def test_an_epoch_shows_no_example_twice_and_never_one_alone(
    n: int, batch_size: int, drop_last: bool
) -> None:
    batches = Batches(numbered(n), batch_size, seed=0, drop_last=drop_last)
    epoch = epoch_ids(batches)
    seen = [i for batch in epoch for i in batch]
    sizes = {len(batch) for batch in epoch}
    assert len(epoch) == len(batches) > 0
    assert len(set(seen)) == len(seen)
    assert min(sizes) >= 2
    if drop_last:
        assert sizes == {min(n, batch_size)}
        assert n - len(seen) < batch_size
    else:
        assert n - len(seen) <= 1


def test_labels_stay_with_their_examples() -> None:
    arrays = numbered(50)
    for x, y in Batches(arrays, 8, seed=0):
        assert torch.equal(y, arrays.y[x.flatten().long()])


def test_epochs_differ_and_the_seed_repeats_them() -> None:
    one, same, other = (Batches(numbered(64), 8, seed=s) for s in (1, 1, 2))
    first, second = epoch_ids(one), epoch_ids(one)
    assert first != second
    assert [epoch_ids(same), epoch_ids(same)] == [first, second]
    assert epoch_ids(other) != first


def images(n: int, size: int, channels: int = 2) -> Arrays:
    """Images in which every pixel is a number of its own and none is zero."""
    x = torch.arange(1, n * channels * size * size + 1).float().view(n, channels, size, size)
    return Arrays(x, torch.arange(n) % 2)


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_a_resumed_run_continues_with_identical_batches(augmentation: str, tmp_path: Path) -> None:
    def start(seed: int) -> Batches:
        return Batches(images(20, 16), 6, seed, augmentation)

    whole = start(7)
    list(whole)
    torch.save(whole.state_dict(), tmp_path / "state.pt")
    resumed = start(99)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for _ in range(2):
        for (x, y), (resumed_x, resumed_y) in zip(whole, resumed, strict=True):
            assert torch.equal(x, resumed_x)
            assert torch.equal(y, resumed_y)


def test_the_state_is_the_next_epochs_even_in_the_middle_of_one() -> None:
    stopped, whole = (Batches(images(20, 16), 6, 7, "crop-flip") for _ in range(2))
    next(iter(stopped))
    list(whole)
    assert torch.equal(stopped.state_dict()["generator"], whole.state_dict()["generator"])


def test_batches_leave_the_global_generators_alone() -> None:
    before = torch.get_rng_state()
    list(Batches(images(20, 16), 6, 7, "crop-flip"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("n", "batch_size"), [(1, 8), (0, 8), (10, 1), (10, 0)])
def test_batches_of_one_are_refused(n: int, batch_size: int) -> None:
    with pytest.raises(UserError, match="at least 2 examples"):
        Batches(numbered(n), batch_size, seed=0)


def test_in_order_shows_everything_once_in_order() -> None:
    arrays = numbered(11)
    shown = list(in_order(arrays, 5))
    assert [len(y) for _, y in shown] == [5, 5, 1]
    assert torch.equal(torch.cat([x for x, _ in shown]), arrays.x)
    assert torch.equal(torch.cat([y for _, y in shown]), arrays.y)


# --- augmentation -------------------------------------------------------------------------------


def shifted_and_flipped(image: torch.Tensor, pad: int) -> dict[tuple[int, int, bool], torch.Tensor]:
    """Every picture crop-flip may make of one image, written out plainly."""
    _, height, width = image.shape
    padded = torch.nn.functional.pad(image, (pad,) * 4)
    made = {}
    for dy in range(2 * pad + 1):
        for dx in range(2 * pad + 1):
            crop = padded[:, dy : dy + height, dx : dx + width]
            made[dy, dx, False], made[dy, dx, True] = crop, crop.flip(-1)
    return made


@pytest.mark.parametrize(("size", "pad"), [(32, 4), (28, 3), (16, 2), (8, 1), (64, 4), (7, 0)])
def test_every_augmented_image_is_a_shifted_or_flipped_copy(size: int, pad: int) -> None:
    x = images(12, size).x
    y = crop_flip(x, torch.Generator().manual_seed(0))
    assert y.shape == x.shape
    for before, after in zip(x, y, strict=True):
        candidates = shifted_and_flipped(before, pad).values()
        assert sum(torch.equal(after, candidate) for candidate in candidates) == 1


def test_all_shifts_and_flips_are_equally_likely() -> None:
    image = images(1, 8, channels=1).x
    n = 18_000
    made = crop_flip(image.expand(n, 1, 8, 8), torch.Generator().manual_seed(0))
    candidates = shifted_and_flipped(image[0], pad=1)
    counts = [int((made == c).flatten(1).all(1).sum()) for c in candidates.values()]
    assert len(counts) == 18
    assert sum(counts) == n
    # A count is binomial with mean 1000 and standard deviation 31.
    assert all(abs(count - 1000) < 5 * 31 for count in counts)


def test_crop_flip_works_on_images_that_are_not_square() -> None:
    x = torch.arange(1.0, 1 + 4 * 16 * 24).view(4, 1, 16, 24)
    for before, after in zip(x, crop_flip(x, torch.Generator().manual_seed(1)), strict=True):
        assert any(torch.equal(after, c) for c in shifted_and_flipped(before, 2).values())


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentation_is_seeded_and_leaves_its_input_alone(name: str) -> None:
    augment = AUGMENTATIONS.get(name)
    x = images(30, 16).x
    kept = x.clone()
    first, same = (augment(x, torch.Generator().manual_seed(3)) for _ in range(2))
    assert first.shape == x.shape
    assert first.dtype == x.dtype
    assert torch.equal(first, same)
    assert torch.equal(x, kept)
    if name != "none":
        assert not torch.equal(first, augment(x, torch.Generator().manual_seed(4)))


def test_an_unknown_augmentation_gets_a_suggestion() -> None:
    with pytest.raises(UserError, match="did you mean 'crop-flip'"):
        Batches(numbered(10), 4, seed=0, augmentation="crop_flip")


def test_crop_flip_of_points_is_refused() -> None:
    with pytest.raises(UserError, match="for images"):
        next(iter(Batches(numbered(10), 4, seed=0, augmentation="crop-flip")))


def test_imagenet_normalisation_is_for_colour_images_only() -> None:
    assert pixel_statistics(DATASETS.get("cifar10"), "imagenet") == (
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
    )
    assert pixel_statistics(DATASETS.get("digits"), "dataset") == ((0.3056,), (0.3761,))
    for name in ("digits", "moons"):
        with pytest.raises(UserError, match=f"imagenet is for colour images, {name} has none"):
            load_train(name, normalize="imagenet")
