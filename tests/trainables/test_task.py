"""Claims about specs: strict, serialisable, and a trial's id is what it trains and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bitfront.trainables.task import Task, TrialSpec, with_overrides


def spec(**changes) -> TrialSpec:
    task = {"dataset": "digits", "model": {"name": "mlp", "width": 16}} | changes.pop("task", {})
    fields = {"task": task, "method": "bnn+", "params": {"mu": 4.0}, "plan": "BF", "seed": 1}
    return TrialSpec.model_validate(fields | changes)


def test_names_stand_for_specs() -> None:
    task = Task.model_validate(
        {"dataset": "digits", "model": "mlp", "schedule": "linear", "optimizer": "sgd"}
    )
    assert task.model.name == "mlp"
    assert task.model.params == {}
    assert task.schedule.shape == "linear"
    assert task.optimizer.name == "sgd"
    long = {"model": {"name": "mlp"}, "schedule": {"shape": "linear"}, "optimizer": {"name": "sgd"}}
    assert task == Task.model_validate({"dataset": "digits"} | long)


def test_short_forms_leave_the_given_dictionary_alone() -> None:
    data = {"dataset": "digits", "model": "mlp"}
    Task.model_validate(data)
    assert data == {"dataset": "digits", "model": "mlp"}


def test_model_parameters_are_whatever_stands_beside_the_name() -> None:
    assert spec().task.model.params == {"width": 16}


@pytest.mark.parametrize(
    "changes",
    [
        {"task": {"epoch": 3}},
        {"task": {"optimizer": {"learning_rate": 1}}},
        {"task": {"schedule": "wavy"}},
        {"task": {"schedule": {"shape": "cosine", "warmup": 1.5}}},
        {"task": {"schedule": "exponential"}},
        {"task": {"epochs": 0}},
        {"task": {"batch_size": 1}},
        {"task": {"optimizer": {"lr": 0}}},
        {"task": {"val_fraction": 1.0}},
        {"task": {"subset": 3}},
        {"task": {"augmentation": "mixup"}},
        {"task": {"binarize": "some"}},
        {"task": {"precision": "fp16"}},
        {"metod": "bnn"},
        {"params": {"mu": [1, 2]}},
    ],
)
def test_what_is_not_known_or_makes_no_sense_is_refused(changes: dict) -> None:
    with pytest.raises(ValidationError):
        spec(**changes)


VALUES = st.one_of(st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.text(max_size=5))


@given(params=st.dictionaries(st.text(max_size=5), VALUES, max_size=4), seed=st.integers(0, 2**31))
def test_a_spec_survives_json_with_every_type(params: dict, seed: int) -> None:
    one = spec(params=params, seed=seed)
    again = TrialSpec.model_validate_json(one.model_dump_json())
    assert again == one
    assert [type(v) for v in again.params.values()] == [type(v) for v in params.values()]


def test_a_default_written_out_is_the_default() -> None:
    short = spec(params={})
    assert spec(params={"mu": 5}).fingerprint() == short.fingerprint()
    assert spec(params={"mu": 5.0, "scale": "none"}).fingerprint() == short.fingerprint()
    again = TrialSpec.model_validate_json(short.model_dump_json())
    assert again.fingerprint("s") == short.fingerprint("s")


def test_equal_specs_have_equal_fingerprints() -> None:
    assert spec().fingerprint("s") == spec().fingerprint("s")
    assert len(spec().fingerprint()) == 8
    two = {"mu": 4.0, "scale": "layer"}
    swapped = dict(reversed(two.items()))
    assert spec(params=two).fingerprint() == spec(params=swapped).fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 2},
        {"params": {"mu": 4.5}},
        {"params": {}},
        {"plan": "FB"},
        {"method": "bnn", "params": {}},
        {"task": {"epochs": 11}},
        {"task": {"model": {"name": "mlp", "width": 17}}},
        {"task": {"optimizer": {"lr": 0.1}}},
        {"task": {"split_seed": 1}},
        {"task": {"subset": 100}},
    ],
)
def test_a_change_of_what_is_trained_changes_the_fingerprint(changes: dict) -> None:
    assert spec(**changes).fingerprint() != spec().fingerprint()


def test_the_search_is_part_of_the_fingerprint_and_the_data_directory_is_not() -> None:
    assert spec().fingerprint("a") != spec().fingerprint("b")
    assert spec(task={"data_dir": "/here"}).fingerprint() == spec().fingerprint()


def test_fingerprints_do_not_depend_on_the_process() -> None:
    code = (
        "import sys; from bitfront.trainables.task import TrialSpec;"
        "print(TrialSpec.model_validate_json(sys.argv[1]).fingerprint('search'))"
    )
    one = spec(params={"mu": 4.0, "scale": "layer", "clamp": True})
    printed = subprocess.run(
        [sys.executable, "-c", code, one.model_dump_json()],
        env=os.environ | {"PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.strip() == one.fingerprint("search")


def test_with_an_all_f_plan_every_method_is_the_same_trial() -> None:
    plain = spec(method="fp", params={}, plan="FF")
    for method, params in (("bnn", {}), ("bnn+", {"mu": 3.0}), ("bnn++", {"mu_end": 50.0})):
        one = spec(method=method, params=params, plan="FF")
        assert one.canonical() == plain
        assert one.fingerprint() == plain.fingerprint()
    assert spec().canonical().method == spec().method


def test_overrides_replace_dotted_keys_and_leave_the_task_alone() -> None:
    task = spec().task
    changed = with_overrides(
        task, {"optimizer.lr": 0.1, "model.width": 8, "epochs": 3, "model.dropout": 0.2}
    )
    assert changed.optimizer.lr == 0.1
    assert changed.optimizer.name == task.optimizer.name
    assert changed.model.params == {"width": 8, "dropout": 0.2}
    assert changed.epochs == 3
    assert task == spec().task
    assert with_overrides(task, {}) == task


@pytest.mark.parametrize("overrides", [{"optimizer.rate": 1}, {"optimizer.lr": -1}, {"epoch": 2}])
def test_overrides_are_validated(overrides: dict) -> None:
    with pytest.raises(ValidationError):
        with_overrides(spec().task, overrides)
