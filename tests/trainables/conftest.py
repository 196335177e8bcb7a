"""Small trials the tests of this folder share: specs filled in, trainings started and finished."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.methods import METHODS
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data

MakeSpec = Callable[..., TrialSpec]


def _make_spec(
    method: str = "bnn",
    level: str = "B",
    plan: str | None = None,
    params: dict[str, Any] | None = None,
    seed: int = 0,
    **task: Any,
) -> TrialSpec:
    """A spec whose plan has `level` everywhere unless one is given. The task is a small MLP on
    200 digits, four epochs of five steps, unless the fields say otherwise."""
    fields: dict[str, Any] = {
        "dataset": "digits",
        "model": {"name": "mlp", "depth": 3, "width": 24},
        "epochs": 4,
        "batch_size": 32,
        "optimizer": {"lr": 0.02},
        "subset": 200,
    }
    if METHODS.get(method).adversary is not None:  # an attack as small as the task
        fields["attack"] = {"eps": 0.05, "steps": 2}
    built = Task.model_validate(fields | task)
    letters = level * len(task_cost_table(built).plan_layers) if plan is None else plan
    return TrialSpec(task=built, method=method, params=params or {}, plan=letters, seed=seed)


def _start(spec: TrialSpec, **options: Any) -> Training:
    return Training(spec, *search_data(spec.task), **options)


def _finish(training: Training) -> Training:
    while not training.done:
        training.epoch()
    return training


@pytest.fixture(scope="session")
def make_spec() -> MakeSpec:
    return _make_spec


@pytest.fixture(scope="session")
def start() -> Callable[..., Training]:
    return _start


@pytest.fixture(scope="session")
def finish() -> Callable[[Training], Training]:
    return _finish


# ProxQuant and its reverse add rho to every weight at every step: with the schedule of the paper
# a run of a hundred steps is at the corners after a dozen. This one reaches them at its end.
SLOW_STEP = {"rho_start": 0.0, "rho_end": 0.02}
# A network this small has few weights to spare.
HALF = {"rate": 0.5}
TO_LEARN: dict[str, dict[str, Any]] = {
    "pq": SLOW_STEP,
    "rpc": SLOW_STEP,
    # A hundred small steps do not carry LR-net's theta from one certainty to the other.
    "lr-net": {"lr": 0.1},
    "edge-popup": {**HALF, "p": 1.0, "score_range": 0.1},
    "rst": {**HALF, "score_range": 0.1},
    **dict.fromkeys(("flyingbird", "flyingbird+", "bcs", "hydra", "atmc"), HALF),
}


def _scaled(method: str, scale: str) -> dict[str, Any]:
    return {"scale": scale} if "scale" in METHODS.get(method).params else {}


@cache
def _trained(method: str, level: str, scale: str) -> Training:
    """Every weight of the network is in the plan, so what it learns it learns in binary."""
    spec = _make_spec(
        method,
        level,
        params=_scaled(method, scale) | TO_LEARN.get(method, {}),
        model={"name": "mlp", "depth": 2, "width": 64},
        epochs=2 if scale != "none" else 8 if level in "BA" else 4,
        optimizer={"lr": 0.01},
        subset=None,
        binarize="all",
    )
    return _finish(_start(spec))


@pytest.fixture(scope="session")
def trained() -> Callable[[str, str, str], Training]:
    """Finished trainings on all of digits, shared between tests: look, do not touch."""
    return _trained
