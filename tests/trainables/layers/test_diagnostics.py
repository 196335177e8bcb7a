"""Claims about diagnostics: every registered one is declared and reported by the methods it applies
to."""

from __future__ import annotations

import math

import pytest

from bitfront.trainables.layers.diagnostics import DIAGNOSTICS
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data

# A network of each kind of layer that a diagnostic may be about.
NETWORKS = {
    "latents": ("bnn", "FBBF", {}),
    "masks": ("flyingbird", "FSSF", {}),
    "overflows": ("bnn", "FAAF", {}),
}


@pytest.fixture(scope="module")
def reports() -> list[dict[str, float]]:
    """What the first epoch of each network reports."""
    found = []
    for method, plan, params in NETWORKS.values():
        spec = TrialSpec.model_validate(
            {
                "task": {
                    "dataset": "digits",
                    "model": {"name": "mlp", "depth": 3, "width": 16},
                    "binarize": "all",
                    "epochs": 1,
                    "subset": 200,
                },
                "method": method,
                "plan": plan,
                "params": params,
            }
        )
        found.append(Training(spec, *search_data(spec.task)).epoch())
    return found


@pytest.mark.parametrize("name", DIAGNOSTICS)
def test_a_diagnostic_is_declared_and_reported(name: str, reports: list[dict[str, float]]) -> None:
    diagnostic = DIAGNOSTICS.get(name)
    assert diagnostic.name == name
    assert diagnostic.doc
    values = [report[name] for report in reports if name in report]
    assert values, f"no network reports {name}"
    assert all(math.isfinite(value) for value in values)
