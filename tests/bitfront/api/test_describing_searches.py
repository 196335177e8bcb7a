"""bf.Search describes what a YAML describes, with the same checks; and what it is handed over in
Python reaches every worker."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import bitfront as bf
from bitfront.api.by_value import dataset_of, importable, reference_to
from bitfront.search.config.load import load_text
from bitfront.trainables.data import DATASETS, load_test, load_train
from bitfront.trainables.data.own.opened import goal_of
from bitfront.trainables.own_code import load_object, look_in, settle, shown

MLP = {"name": "mlp", "depth": 4, "width": 8}
SCALE = 2.0


def search(**more):
    return bf.Search(**{"model": MLP, "data": "digits", "trials": 3, **more})


def test_importing_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys, time; began = time.process_time(); import bitfront as bf; dir(bf); "
        "print(time.process_time() - began); "
        "print([m for m in ('torch', 'ray', 'pandas', 'numpy', 'pydantic') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    answers = [subprocess.check_output(command, text=True).splitlines() for _ in range(2)]
    assert min(float(seconds) for seconds, _ in answers) < 0.2
    assert answers[0][1] == "[]"


def test_every_name_is_there_and_explains_itself():
    for name in bf.__all__:
        assert getattr(bf, name).__doc__, name
    with pytest.raises(AttributeError):
        _ = getattr(bf, "serach")  # noqa: B009


def test_a_search_is_the_same_as_its_yaml():
    described = search(
        methods=["bnn", "bnn++"],
        levels="FWB",
        objectives={"val_accuracy": "max", "bytes": "min"},
        epochs=4,
        sampler="random",
        seed=7,
        name="mine",
        space={"optimizer.lr": {"float": [1e-4, 1e-2], "log": True}},
        limits={"flops_pct": 90},
    )
    config, space = described.load()
    again, same = load_text(described.yaml())
    assert config == again
    assert space == same
    assert (config.task.epochs, config.search.seed, config.name) == (4, 7, "mine")
    assert config.space["plan"] == {"per": "layer", "levels": ["F", "W", "B"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": 3}, "did you mean 'epochs'"),
        ({"methods": "bnm"}, "did you mean 'bnn'"),
        ({"data": "digit"}, "did you mean 'digits'"),
        ({"trials": 0}, "search.trials"),
        ({"objectives": {"val_acuracy": "max"}}, "val_accuracy"),
        ({"levels": "FX"}, "X"),
        ({"model": nn.Linear(2, 2)}, "pass the class"),
        ({"methods": [3]}, "neither a name nor a class"),
        ({"methods": None}, "neither a name nor a class"),
        ({"objectives": ["val_accuracy"]}, "'val_accuracy': 'max'"),
        ({"plan": "layr"}, "did you mean 'layer'"),
    ],
)
def test_a_mistake_is_the_error_that_a_yaml_gives(change, message):
    with pytest.raises(bf.UserError, match=message):
        search(**change).validate()


def test_a_changed_key_of_a_yaml_is_checked_like_its_own(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(search().yaml())
    with pytest.raises(bf.UserError, match=r"task\.epochs"):
        bf.run(file, task__epochs=0)


def test_a_search_that_is_not_there_names_those_that_are():
    with pytest.raises(bf.UserError, match="nothing-here"):
        bf.open("nothing-here")


def test_a_notebook_shows_a_mistake_as_lines_without_a_traceback():
    error = bf.UserError("plan: too short", "give 3 letters")
    assert error._render_traceback_() == ["error: plan: too short", "  give 3 letters"]


# Data that are handed over.


@pytest.fixture
def xy():
    torch.manual_seed(0)
    x = torch.rand(60, 1, 4, 4)
    return x, (x.mean((1, 2, 3)) > 0.5).long()


def test_datasets_arrays_and_loaders_become_one_file_that_any_process_reads(tmp_path, xy):
    x, y = xy
    parts = (
        TensorDataset(x[:40], y[:40]),
        (x[40:50].numpy(), y[40:50].numpy()),
        DataLoader(TensorDataset(x[50:], y[50:]), batch_size=3, shuffle=True),
    )
    config, _ = search(data=parts).load()
    info = DATASETS.get(config.task.dataset)
    assert (info.shape, info.classes, info.test_size) == ((1, 4, 4), 2, 10)
    assert len(load_train(config.task.dataset)) == 50
    kept = load_test(config.task.dataset)
    assert torch.equal(torch.as_tensor(kept.y), y[50:])
    assert dataset_of(parts, tmp_path) == dataset_of(parts, tmp_path)


class Augmented(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(3, 4, 4), index % 2


class Broken(Augmented):
    def __getitem__(self, index):
        raise RuntimeError("no such image")


class Mixed(Augmented):
    def __getitem__(self, index):
        return torch.zeros(3, 4 + index % 2, 4), index % 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Augmented(), "differ each time"),
        (Broken(), "RuntimeError: no such image"),
        (Mixed(), "mixed shapes"),
        ((np.zeros((4, 3)), np.zeros(5)), "4 examples but 5 targets"),
        ({"tain": Mixed()}, "did you mean 'train'"),
        (3, "int"),
    ],
)
def test_data_that_cannot_be_trained_on_are_one_line(data, message):
    with pytest.raises(bf.UserError, match=message) as caught:
        search(data=data)
    assert "\n" not in caught.value.message


def test_data_may_bring_a_metric_of_their_own(tmp_path, xy):
    def both(outputs, targets):
        return (outputs.argmax(1) == targets).float().mean() * SCALE

    data = {"train": xy, "test": xy, "metric": {"both": both}, "direction": "max"}
    name = dataset_of(data, tmp_path)
    assert dataset_of(data, tmp_path) == name
    wanted = {"val_both": "max", "flops": "min"}
    config, _ = search(data=name, home=tmp_path, objectives=wanted).load()
    goal = goal_of(config.task.dataset)
    assert float(goal.metrics["both"](torch.eye(2), torch.arange(2))) == 2.0


# Classes and functions that have no file.


def test_a_class_of_a_module_is_named_by_it():
    assert importable(TensorDataset) is not None
    assert importable(Augmented) == f"{__name__}:Augmented"


def test_a_class_keeps_its_name_after_a_search_has_loaded_its_module(tmp_path, monkeypatch):
    (tmp_path / "nets_by_name.py").write_text("class Net:\n    pass\n\n\nOther = Net\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("nets_by_name")
    name = reference_to(module.Net, "model", tmp_path)
    assert name == "nets_by_name:Net"
    assert load_object(settle(name)) is not module.Net
    assert reference_to(module.Net, "model", tmp_path) == name


def test_loading_says_that_the_file_of_the_network_has_changed(tmp_path, monkeypatch):
    code = "from torch import nn\n\n\nclass Net(nn.Sequential):\n    def __init__(self):\n"
    code += "        super().__init__(*[nn.Linear(4, 4) for _ in range(3)])\n"
    for place in ("kept", "here"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "changing_net.py").write_text(code)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(tmp_path / "here")
    model = importlib.import_module("changing_net").Net()
    bf.binarize(model, plan="B", method="bnn")
    model(torch.randn(2, 4))
    bf.save(model, "net.safetensors")
    look_in(tmp_path / "kept")
    bf.load("net.safetensors")
    (tmp_path / "here" / "changing_net.py").write_text(code + "# edited\n")
    with pytest.warns(UserWarning, match=r"changing_net\.py has changed \(was @.*, now @") as told:
        bf.load("net.safetensors")
    assert "model=Net(...)" in str(told[0].message)


def test_a_class_without_a_file_is_kept_once_and_loaded_by_its_reference(tmp_path):
    def make(factor):
        def scaled(x):
            return x * factor

        return scaled

    first, second = (reference_to(make(f), "model", tmp_path) for f in (2, 3))
    assert shown(first) == "scaled.pkl:scaled"
    assert first != second
    assert load_object(first)(5) == 10
    assert load_object(second)(5) == 15

    def plain(x):
        return x * SCALE

    assert reference_to(plain, "model", tmp_path) == reference_to(plain, "model", tmp_path)


def test_what_cannot_be_pickled_is_refused_with_the_reason(tmp_path):
    file = (tmp_path / "open.txt").open("w")

    def holds_a_file():
        return file

    with pytest.raises(bf.UserError, match="holds_a_file cannot be sent to workers") as caught:
        reference_to(holds_a_file, "model", tmp_path)
    file.close()
    assert "PicklingError" in caught.value.message
    assert "my_code.py:holds_a_file" in caught.value.hint


def test_code_of_a_notebook_that_was_received_is_not_run_without_trust(tmp_path, monkeypatch):
    def made():
        return 1

    name = reference_to(made, "model", tmp_path)
    monkeypatch.setattr("bitfront.trainables.own_code.trusted._now", {})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of-another-user"))
    monkeypatch.setattr("bitfront.trainables.own_code.loading._objects", {})
    with pytest.raises(bf.UserError, match="have not run before") as caught:
        load_object(name)
    assert "trust=True" in caught.value.hint


# Plans without a search.


def test_a_selector_makes_a_plan_for_a_budget():
    plan = bf.select(MLP, "digits", "mixbin-grad", budget=0.9, epochs=1, subset=100)
    assert set(plan) == {"F", "B"}
    with pytest.raises(bf.UserError, match="cheapest plan"):
        bf.select(MLP, "digits", "mixbin-grad", budget=0.1, epochs=1, subset=100)
    with pytest.raises(bf.UserError, match=r"give 0\.4"):
        bf.select(MLP, "digits", budget=40)
    with pytest.raises(bf.UserError, match="did you mean"):
        bf.select(MLP, "digits", "mixbin-gard", budget=0.9)
