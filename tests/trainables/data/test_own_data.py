"""Data of the user's own: looked at once, named with their declaration, read in memory or for every
batch, and refused in one line where they cannot be trained on."""

import json
import sys

import numpy as np
import pytest
import torch

from bitfront.cli import main
from bitfront.search.recipes.seed_training import final_data
from bitfront.trainables import own_code
from bitfront.trainables.data import DATASETS, Arrays, dataset_title, load_search, load_test
from bitfront.trainables.data import datasets as loading
from bitfront.trainables.data.own import declaration, look
from bitfront.trainables.data.own.arrays import write_arrays
from bitfront.trainables.data.own.examples import Examples
from bitfront.trainables.data.own.opened import goal_of
from bitfront.trainables.data.own.target import remarks
from bitfront.trainables.errors import UserError
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.tasks import kind_of
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data

HEAD = """\
import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset
from torch.utils.data import TensorDataset

G = torch.Generator().manual_seed(0)
X = torch.rand(80, 6, generator=G)
Y = (X[:, 0] > 0.5).long()


def load(**arguments):
"""


@pytest.fixture(autouse=True)
def _nothing_opened():
    look.forget()
    loading._read.cache_clear()


@pytest.fixture
def settled(tmp_path):
    """The settled name of data that a function with this body returns."""

    def settle(body, before="", arguments=None, name="load", after=""):
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (tmp_path / "my_data.py").write_text(before + HEAD + lines + after)
        own_code.look_in(tmp_path)
        look.forget()
        given = declaration.with_arguments(f"my_data.py:{name}", arguments or {})
        return DATASETS.settle(given, None)

    return settle


def declared(name):
    return name.partition(";")[2]


def task(name, **more):
    model = {"name": "mlp", "depth": 4, "width": 8}
    return Task(dataset=name, model=model, **{"epochs": 2, "batch_size": 16, **more})


def trained(name, **more):
    """A training of two epochs on the data."""
    made = task(name, **more)
    run = Training(TrialSpec(task=made, method="bnn", plan="BBB"), *search_data(made))
    while not run.done:
        run.epoch()
    return run


# --- what may be returned -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        ("return X, Y", "n=80/0/0"),
        ("return X.numpy(), Y.numpy()", "n=80/0/0"),
        ("return TensorDataset(X, Y)", "n=80/0/0"),
        ("return (X[:60], Y[:60]), (X[60:], Y[60:])", "n=60/0/20"),
        ("return TensorDataset(X[:60], Y[:60]), TensorDataset(X[60:], Y[60:])", "n=60/0/20"),
        ("return (X[:50], Y[:50]), (X[50:60], Y[50:60]), (X[60:], Y[60:])", "n=50/10/20"),
        ("return {'train': (X[:60], Y[:60]), 'validation': (X[60:], Y[60:])}", "n=60/20/0"),
        ("return DataLoader(TensorDataset(X, Y), 8, shuffle=True)", "n=80/0/0"),
        ("return [(x, int(y)) for x, y in zip(X, Y)]", "n=80/0/0"),
        ("return Subset(TensorDataset(X, Y), range(40)), (X, Y)", "n=40/0/80"),
        ("return [Subset(TensorDataset(X, Y), range(60)), TensorDataset(X, Y)]", "n=60/0/80"),
        ("return [DataLoader(TensorDataset(X, Y), 8)] * 3", "n=80/80/80"),
    ],
)
def test_the_forms_that_a_function_may_return(settled, body, sizes):
    name = settled(body)
    assert declared(name) == f"6;2;{sizes}"
    train, _ = load_search(name)
    assert isinstance(train, Arrays)
    assert train.x[3].allclose(torch.rand(80, 6, generator=torch.Generator().manual_seed(0))[3])


def test_a_dataset_that_can_only_be_iterated_is_read_once(settled):
    before = """\
import torch
from torch.utils.data import IterableDataset
class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.full((4,), float(i)), i % 2) for i in range(12)])
"""
    assert declared(settled("return Stream()", before)) == "4;2;n=12/0/0"


def test_a_loader_with_a_collate_function_of_its_own_is_read_in_order(settled):
    body = (
        "collate = lambda rows: (torch.stack([2 * x for x, _ in rows]), "
        "torch.stack([y for _, y in rows]))\n"
        "return DataLoader(TensorDataset(X, Y), 16, shuffle=True, collate_fn=collate)"
    )
    train, _ = load_search(settled(body))
    first = torch.rand(80, 6, generator=torch.Generator().manual_seed(0))
    assert train.x.equal(2 * first)


def test_arguments_are_part_of_the_name(settled):
    body = "return X[:arguments['n']], Y[:arguments['n']]"
    name = settled(body, arguments={"n": 40})
    assert declared(name) == "6;2;n=40/0/0;load.n=40"
    assert len(load_search(name)[0]) == 40
    assert settled(body, arguments={"n": 50}) != name


def test_the_title_is_what_the_user_wrote(settled):
    assert dataset_title(settled("return X, Y")) == "my_data.py:load"


# --- the name -----------------------------------------------------------------------------------


def test_a_settled_name_needs_neither_code_nor_data(settled, tmp_path):
    name = settled("return X, Y")
    (tmp_path / "my_data.py").unlink()
    look.forget()
    info = DATASETS.get(name)
    assert (info.shape, info.classes, info.kind) == ((6,), 2, "classification")
    assert DATASETS.settle(name, None) == name


def test_the_shortest_settled_name_is_enough():
    info = DATASETS.get("my_data.py:load@3f2a9c1b7d20;3x32x32;10")
    assert (info.shape, info.classes, info.mean) == ((3, 32, 32), 10, (0.0, 0.0, 0.0))


def test_a_name_that_is_not_settled_runs_nothing(tmp_path):
    (tmp_path / "my_data.py").write_text("raise SystemExit('run')\n")
    own_code.look_in(tmp_path)
    with pytest.raises(UserError, match="has not been looked at"):
        DATASETS.get("my_data.py:load")


@pytest.mark.parametrize("end", ["3x32x32", "x;10", "3;-1", "3;2;n=1", "3;2;metric=f1", "0;2"])
def test_a_damaged_name_is_one_line(end):
    with pytest.raises(UserError, match=r"my_data\.py"):
        DATASETS.get(f"my_data.py:load@3f2a9c1b7d20;{end}")


def test_what_is_written_is_read_back():
    told = declaration.Declared(
        shape=(3, 8, 8),
        outputs=4,
        target="own",
        sizes=(10, 0, 3),
        metrics=(declaration.OwnMetric("f1", True, 0.25), declaration.OwnMetric("mae", False, 2.0)),
        own_loss=True,
        loss_chance=0.5,
        mean=(0.5, 0.25, 0.125),
        std=(1.0, 2.0, 3.0),
        each=True,
        random=True,
        arguments={"root": "a;b=c, d", "n": 3},
    )
    assert declaration.read(declaration.write("a.py:f@3f2a9c1b7d20", told)) == told


def test_data_that_changed_are_noticed(settled, tmp_path):
    body = "import os\nn = int(open(os.environ['COUNT']).read())\nreturn X[:n], Y[:n]"
    count = tmp_path / "count"
    count.write_text("60")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNT", str(count))
        name = settled(body)
        count.write_text("50")
        look.forget()
        with pytest.raises(UserError, match="50 examples of 6, but 60 of 6 when"):
            load_search(name)


# --- how examples are used ----------------------------------------------------------------------


def test_numbers_are_used_as_they_come_and_pixels_are_normalised(settled):
    train, _ = load_search(settled("return 100 * X, Y"))
    assert 50 < float(train.x.max()) <= 100
    pixels = settled("return (255 * torch.rand(80, 3, 8, 8)).to(torch.uint8), Y")
    train, _ = load_search(pixels)
    assert abs(float(train.x.mean())) < 0.01
    assert abs(float(train.x.std()) - 1) < 0.01


def test_given_parts_are_used_and_others_are_split(settled):
    given = settled("return (X[:50], Y[:50]), (X[50:60], Y[50:60]), (X[60:], Y[60:])")
    train, validation = search_data(task(given))
    assert (len(train), len(validation)) == (50, 10)
    final, test = final_data(task(given), None)
    assert (len(final), len(test)) == (60, 20)
    split = settled("return X, Y")
    assert tuple(map(len, search_data(task(split, val_fraction=0.25)))) == (60, 20)


def test_final_training_without_a_test_part_measures_the_validation_part(settled):
    name = settled("return X, Y")
    assert tuple(map(len, final_data(task(name), None))) == (64, 16)
    with pytest.raises(UserError, match="has no part 'test'"):
        load_test(name)


def test_a_trial_trains_on_them(settled):
    run = trained(settled("return X, Y"))
    assert 0 <= run.history[-1]["val_accuracy"] <= 1


NOISY = """\
import torch
from torch.utils.data import Dataset
class Noisy(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return torch.full((6,), float(i % 2)) + 0.1 * torch.randn(6), i % 2
"""


def test_augmented_examples_are_read_for_every_batch(settled):
    name = settled("return Noisy()", NOISY)
    assert declared(name) == "6;2;n=40/0/0;read=random"
    train, _ = load_search(name)
    assert isinstance(train, Examples)
    groups = [torch.arange(8)]
    draws = [next(iter(train.batches(groups, "none", _seeded(s))))[0] for s in (0, 0, 1)]
    assert draws[0].equal(draws[1])
    assert not draws[0].equal(draws[2])
    assert any("differ each time" in note for note in look.looked_at(name).notes)


def _seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_a_resumed_trial_gets_the_same_augmented_examples(settled):
    name = settled("return Noisy()", NOISY)
    whole = trained(name)
    made = task(name)
    spec = TrialSpec(task=made, method="bnn", plan="BBB")
    first = Training(spec, *search_data(made))
    first.epoch()
    state = first.state_dict()
    torch.randn(5)
    second = Training(spec, *search_data(made))
    second.load_state_dict(state)
    second.epoch()
    assert second.history[-1]["train_loss"] == whole.history[-1]["train_loss"]


def test_reading_an_example_leaves_the_random_numbers_alone(settled):
    train, _ = load_search(settled("return Noisy()", NOISY))
    torch.manual_seed(3)
    before = torch.get_rng_state()
    next(iter(train.batches([torch.arange(4)])))
    assert torch.get_rng_state().equal(before)


def test_data_above_the_limit_of_memory_are_read_for_every_batch(settled, monkeypatch):
    monkeypatch.setattr(look, "IN_MEMORY_BYTES", 100)
    name = settled("return TensorDataset(X[:60], Y[:60]), TensorDataset(X[60:], Y[60:])")
    assert declared(name) == "6;2;n=60/0/20;read=each"
    train, validation = search_data(task(name))
    assert isinstance(train, Examples)
    assert (len(train), len(validation)) == (48, 12)
    assert 0 <= trained(name).history[-1]["val_accuracy"] <= 1


def test_parts_that_are_read_for_every_batch_can_be_joined(settled, monkeypatch):
    monkeypatch.setattr(look, "IN_MEMORY_BYTES", 100)
    name = settled("return (X[:50], Y[:50]), (X[50:60], Y[50:60]), (X[60:], Y[60:])")
    train, test = final_data(task(name), None)
    assert (len(train), len(test)) == (60, 20)
    x, _ = next(iter(train.batches([torch.tensor([49, 50, 59])])))
    all_x = torch.rand(80, 6, generator=_seeded(0))
    assert x.allclose(all_x[[49, 50, 59]])


# --- regression, and a loss and metrics of their own --------------------------------------------


def test_floats_are_regression_in_their_own_unit(settled):
    name = settled("return X, 3 * X[:, 0] + X[:, 1]")
    assert declared(name).startswith("6;regression;n=80/0/0;spread=")
    kind, info = kind_of(name), DATASETS.get(name)
    targets = load_search(name)[0].y
    assert kind.chance("val_rmse", info) == pytest.approx(float(targets.std()), rel=0.02)
    assert "val_rmse" in trained(name).history[-1]


def test_several_numbers_are_several_outputs(settled):
    name = settled("return X, 10 * X[:, :3]")
    assert DATASETS.get(name).classes == 3
    assert "val_rmse" in trained(name).history[-1]


OWN = """\
def f1(outputs, targets):
    found = outputs > 0
    both = (found & (targets > 0.5)).sum()
    return float(2 * both / (found.sum() + targets.sum() + 1e-9))
"""


def test_a_metric_and_a_loss_of_their_own(settled):
    body = (
        "loss = torch.nn.functional.binary_cross_entropy_with_logits\n"
        "y = (X[:, :4] > 0.5).float()\n"
        "return {'train': (X, y), 'metric': f1, 'loss': loss}"
    )
    name = settled(body, OWN)
    assert "6;own;outputs=4;n=80/0/0;metric=f1/max/0;loss=0.6931" in name
    kind = kind_of(name)
    assert [metric.name for metric in kind.metrics] == ["val_f1", "val_loss"]
    last = trained(name).history[-1]
    assert 0 <= last["val_f1"] <= 1
    assert last["val_loss"] < 2


@pytest.mark.parametrize(
    ("most", "more", "outputs", "noted"),
    [(3, "", 4, False), (1, "", 16, True), (1, ", 'outputs': 2", 2, False)],
)
def test_a_class_for_every_step_is_an_output_for_every_class(settled, most, more, outputs, noted):
    body = (
        f"y = torch.randint({most + 1}, (80, 16), generator=G)\n"
        "loss = lambda outputs, targets: outputs.square().mean() + targets.sum()\n"
        f"return {{'train': (torch.rand(80, 2, 16, generator=G), y), 'loss': loss{more}}}"
    )
    name = settled(body)
    assert DATASETS.get(name).classes == outputs
    assert noted == any("for a class per step" in note for note in look.looked_at(name).notes)


def test_own_metrics_stand_beside_those_of_the_targets(settled):
    body = (
        "error = lambda outputs, targets: (outputs.argmax(1) != targets).float().mean()\n"
        "return {'train': (X, Y), 'metric': {'wrong': error}, 'direction': 'min'}"
    )
    name = settled(body)
    assert kind_of(name).quality.name == "val_wrong"
    assert not kind_of(name).quality.maximize
    last = trained(name).history[-1]
    assert last["val_wrong"] == pytest.approx(1 - last["val_accuracy"])


def test_attributes_of_the_function_say_it_without_loading_the_data(settled, tmp_path):
    body = "open(__file__ + '.runs', 'a').write('x')\nreturn X, Y"
    after = "\n\ndef mean(outputs, targets):\n    return outputs.mean()\n\nload.metric = mean\n"
    name = settled(body, after=after)
    look.forget()
    assert list(goal_of(look.key_of(name)).metrics) == ["mean"]
    assert (tmp_path / "my_data.py.runs").read_text() == "x"


def test_a_metric_needs_a_name(settled):
    with pytest.raises(UserError, match="no name of a metric"):
        settled("return {'train': (X, Y), 'metric': lambda outputs, targets: 1.0}")


def test_one_number_per_example_has_the_shape_of_its_targets(settled):
    before = """\
def mae(outputs, targets):
    assert outputs.shape == targets.shape
    return float((outputs - targets).abs().mean())
"""
    body = "return {'train': (X, X[:, 0]), 'metric': mae, 'direction': 'min'}"
    last = trained(settled(body, before)).history[-1]
    assert last["val_mae"] <= last["val_rmse"]


# --- arrays: and hf: ----------------------------------------------------------------------------


def test_arrays_are_named_by_their_content(tmp_path):
    x, y = np.random.default_rng(0).random((40, 3, 8, 8)), np.arange(40) % 4
    parts = {"train": (x[:30], y[:30]), "test": (x[30:], y[30:])}
    name = write_arrays(parts, tmp_path)
    assert write_arrays(parts, tmp_path) == name
    assert write_arrays({"train": (x + 1, y)}, tmp_path) != name
    settled = DATASETS.settle(name, None)
    assert settled == f"{name};3x8x8;4;n=30/0/10"
    assert load_test(settled).x.allclose(torch.from_numpy(x[30:]).float())
    assert dataset_title(settled).startswith("arrays:")
    assert str(tmp_path) not in dataset_title(settled)


def test_whatever_a_function_may_return_can_be_handed_over(tmp_path):
    x, y = torch.rand(12, 5), torch.arange(12) % 3
    rows = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(rows, 4)
    names = {
        write_arrays(data, tmp_path)
        for data in ((x, y), rows, loader, list(zip(x, y, strict=True)))
    }
    assert len(names) == 1
    three = DATASETS.settle(write_arrays((rows, loader, (x, y)), tmp_path), None)
    assert declared(three) == "5;3;n=12/12/12"
    with pytest.raises(UserError, match="metric") as refused:
        write_arrays({"train": (x, y), "metric": max}, tmp_path)
    assert "data=load" in refused.value.hint
    with pytest.raises(UserError, match="data, part train: mixed shapes"):
        write_arrays([(x[0], 0), (x[1, :2], 1)], tmp_path)


def test_a_file_that_is_no_arrays_is_one_line(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"nothing")
    for name in ("a", "b"):
        with pytest.raises(UserError, match="no file of arrays"):
            DATASETS.settle(f"arrays:{tmp_path}/{name}.safetensors", None)


class StoredRows(list):
    column_names = ("picture", "label")


def test_a_hugging_face_dataset_on_disk(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from PIL import Image

    rows = [{"picture": Image.new("RGB", (9, 12), (i, 0, 0)), "label": i % 2} for i in range(10)]
    stored = {"train": StoredRows(rows), "validation": StoredRows(rows[:4])}
    library = SimpleNamespace(load_from_disk=lambda _path: stored)
    monkeypatch.setitem(sys.modules, "datasets", library)
    name = DATASETS.settle(f"hf:{tmp_path}:picture:label:8", None)
    assert name.startswith(f"hf:{tmp_path}:picture:label:8;3x8x8;2;n=10/4/0;mean=")
    with pytest.raises(UserError, match="which are meant"):
        DATASETS.settle(f"hf:{tmp_path}", None)


def test_without_the_library_hugging_face_datasets_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="not installed"):
        DATASETS.settle(f"hf:{tmp_path}", None)


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        ("return [(torch.rand(3, i, 8), 0) for i in (8, 8, 9)]", "example 2 is 3x9x8", "resize"),
        ("return X, Y - 1", "labels from -1 to 0", "from 0"),
        ("return X, Y + 1", "labels from 1 to 2", "subtract 1"),
        ("return (X, Y), (X, Y + 1)", "label 2 is out of range", "training"),
        ("return X, Y.float()", "are they labels", "long"),
        ("return {'train': (X, X[:, 0]), 'kind': 'classification'}", "labels are floats", "long"),
        ("return X, torch.nn.functional.one_hot(Y, 2)", "one-hot", "argmax"),
        ("return X, torch.nn.functional.one_hot(Y, 2).float()", "one-hot", "argmax"),
        ("X[7, 2] = float('nan')\nreturn X, Y", "x of example 7 has NaN", "nan_to_num"),
        ("return X, X[:, 0] / 0", "y of example 0 has NaN", "leave such"),
        ("return X[:0], Y[:0]", "part train: is empty", "match nothing"),
        ("return (X, Y), (X[:0], Y[:0])", "part test: is empty", "match nothing"),
        ("return X, Y[:-1]", "80 examples but 79 targets", None),
        ("return X, 0 * Y", "every label is 0", "two classes"),
        ("return X, 1000 * Y", "only 2 different", "number them"),
        ("raise ValueError('no disk')", r"my_data\.py:12: .*ValueError: no disk", None),
        ("return None", "returns no training part", "return a Dataset"),
        ("return 5", "returns int as train", "return a Dataset"),
        ("return ((x, 0) for x in X)", "returns generator as train", "list(...)"),
        ("return [(X, Y), (X, Y)]", "returns a list of 2 pairs of arrays", "as a tuple"),
        ("return X, Y, X, Y", "returns 4 things", "return a Dataset"),
        ("return X, Y, X", "returns bare arrays", "return a Dataset"),
        ("return {'trian': (X, Y)}", "a part 'trian', did you mean 'train'", None),
        ("return {'test': (X, Y)}", "returns no training part", "return a Dataset"),
        ("return torch.rand(40, 16, 16, 3), Y[:40]", "channels last", "permute"),
        (
            "import scipy.sparse\nreturn scipy.sparse.csr_matrix(X), Y",
            "is sparse: a csr_matrix",
            "toarray",
        ),
        ("return X[:, :0], Y", "x of shape 0 holds no number", None),
        ("return X.to(torch.complex64), Y", "x of example 0 is complex", "view_as_real"),
        ("return np.ma.masked_less(X.numpy(), 0.5), Y", "has masked values", "filled"),
        ("return [torch.rand(3)] * 4", "example 0 is Tensor, not a pair", None),
        ("return [{'x': 1, 'y': 2}] * 4", "example 0 is a dict of x, y", "__getitem__"),
        ("return [('a', 1)] * 4", "x of example 0 is a str", None),
        ("return [(X[0], 'cat')] * 4", "y of example 0 is a str", "number the classes"),
        ("return [(1.0, 0), (2.0, 1)]", "x is a single number", "reshape"),
        ("return [(X[0], 0), (X[1], 1.5)]", "mixed types: y of example 1 is a float", None),
        ("return X, torch.zeros(80, 4, 4).long()", "shape 4x4", "loss of your own"),
        ("return (X, Y), (X[:, :5], Y)", "part test: mixed shapes", None),
        ("return (X, Y), (X, X[:, 0])", "targets like floats", None),
        ("return {'train': (X, Y), 'loss': 3}", "'loss' should be a function", "CrossEntropyLoss"),
        ("return {'train': (X, Y), 'metric': max, 'direction': 'up'}", "write max or min", None),
        ("return {'train': (X, Y), 'metric': max}", "error when the metric max", None),
        ("return {'train': (X, Y), 'kind': 'ranking'}", "one of: classification", None),
    ],
)
def test_bad_data_are_one_line_with_a_hint(settled, body, message, hint):
    with pytest.raises(UserError, match=message) as refused:
        settled(body)
    assert "\n" not in refused.value.message
    assert hint is None or hint in str(refused.value.hint)


@pytest.mark.parametrize(
    "x", ["X.numpy().astype('>f8')", "np.broadcast_to(X[:1].numpy(), (80, 6))"]
)
def test_arrays_of_any_order_and_rights_are_read(settled, x, recwarn):
    assert declared(settled(f"return {x}, Y")).startswith("6;2")
    assert not [w for w in recwarn if "writable" in str(w.message)]


def test_a_spectrogram_of_few_frames_is_no_image_with_channels_last(settled):
    assert declared(settled("return torch.rand(80, 12, 10, 4), Y")).startswith("12x10x4;2")


def test_a_picture_without_a_transform_says_what_is_missing(settled):
    body = "from PIL import Image\nreturn [(Image.new('RGB', (8, 8)), 0), (1, 1)]"
    with pytest.raises(UserError, match="PIL image") as refused:
        settled(body)
    assert "ToTensor" in refused.value.hint


def test_arguments_that_are_missing_or_unknown_are_named(settled, tmp_path):
    before = "def needs(root):\n    pass\n"
    with pytest.raises(UserError, match="needs a value for 'root'"):
        settled("return X, Y", before, name="needs")
    with pytest.raises(UserError, match="takes no 'rot', did you mean 'root'"):
        settled("return X, Y", before, name="needs", arguments={"rot": 1})


def test_an_example_that_fails_names_the_line_of_the_user(settled):
    before = """\
class Rows:
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return {}[i]
"""
    with pytest.raises(UserError, match=r"my_data\.py:5: an error when example 0 of train is read"):
        settled("return Rows()", before)


def test_large_targets_and_images_without_channels_are_noted(settled):
    name = settled("return torch.rand(80, 28, 28), 1000 * X[:, 0]")
    notes = look.looked_at(name).notes
    assert any("standardised" in note for note in notes)
    assert any("1x28x28" in note for note in notes)


# --- at the command line ------------------------------------------------------------------------


@pytest.fixture
def search(tmp_path, monkeypatch):
    """The path of a YAML beside a `my_data.py` with this body."""

    def write(body, more=""):
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (tmp_path / "my_data.py").write_text(HEAD + lines)
        space = "space: {method: bnn, plan: {per: layer, levels: [F, B]}}\n"
        data = f"task: {{dataset: 'my_data.py:load', model: mlp{more}}}\n"
        (tmp_path / "s.yaml").write_text(data + space)
        return str(tmp_path / "s.yaml")

    return write


def test_validate_shows_the_data_and_says_that_there_is_no_test_part(search, capsys):
    assert main(["validate", search("return X, Y")]) == 0
    shown = capsys.readouterr()
    assert "data my_data.py:load: x 6 from" in shown.out
    assert "80 training examples, 20% of them for validation, no test part" in shown.out
    assert "return (train, test) or (train, val, test)" in " ".join(shown.err.split())


def test_bad_data_are_exit_code_2_with_the_line_of_the_yaml(search, capsys):
    assert main(["validate", search("return X, Y + 1")]) == 2
    error = capsys.readouterr().err
    assert "s.yaml:1 task.dataset: my_data.py:load, part train: labels from 1 to 2" in error
    assert "subtract 1" in error
    assert "Traceback" not in error
    assert "objective" not in error


def test_the_default_objective_is_the_quality_of_the_data(search, capsys):
    body = "return {'train': (X, Y), 'metric': {'hits': lambda o, t: (o.argmax(1) == t).sum()}}"
    for returned, quality in (("return X, X[:, 0]", "val_rmse"), (body, "val_hits")):
        look.forget()
        assert main(["validate", "--json", search(returned)]) == 0
        config = json.loads(capsys.readouterr().out)["config"]
        assert next(iter(config["objectives"])) == quality


def test_arguments_are_written_below_the_task(search, capsys):
    body = "return X[:arguments['n']], Y[:arguments['n']]"
    assert main(["validate", search(body, ", data: {n: 40}")]) == 0
    assert "40 training examples" in capsys.readouterr().out
    file = search("return X, Y", ", data: {n: 40}")
    assert main(["validate", file, "--set", "task.dataset=digits"]) == 2
    assert "digits takes no arguments" in capsys.readouterr().err


def test_labels_that_no_example_has_are_noted():
    assert remarks(torch.tensor([0, 1, 2, 1]), "classes", "mine") == []
    [note] = remarks(torch.tensor([0, 1, 4]), "classes", "mine")
    assert "no training example has the label 2, 3, but there are labels up to 4" in note
