"""What failed trials have in common, in words."""

import math
import random

import pytest

from bitfront.search.failing import patterns
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.networks import Networks
from bitfront.search.ledger.states import TrialState
from bitfront.trainables.task import Task, TrialSpec

TASK = Task.model_validate({"dataset": "digits", "model": {"name": "mlp", "depth": 7}})


def trials(fails, count=60, reason="nan"):
    """Random plans, methods and learning rates, each failed where `fails` says so."""
    rng, found = random.Random(0), []
    for i in range(count):
        lr = 10 ** rng.uniform(-4, 0)
        method = rng.choice(["bnn", "bnn++"])
        spec = TrialSpec(task=TASK, method=method, plan="".join(rng.choices("FB", k=6)))
        failed = fails(spec.plan, method, lr)
        entry = Entry(f"{i:08x}", i, TrialState.COMPLETE, spec, {}, drawn={"optimizer.lr": lr})
        if failed:
            entry.state, entry.failure = TrialState.FAILED, reason
        found.append(entry)
    return found


def test_a_high_rate_with_one_method_is_named_with_its_threshold():
    entries = trials(lambda plan, method, lr: lr > 0.03 and method == "bnn++")
    (pattern,) = patterns(entries, Networks())
    assert pattern.text.startswith("optimizer.lr above ")
    assert pattern.text.endswith(" with bnn++")
    place = float(pattern.text.split()[2])
    assert abs(math.log10(place / 0.03)) < 0.2
    assert pattern.failed == pattern.ended > 5
    assert pattern.failed_elsewhere == 0
    assert str(pattern).endswith(f"elsewhere 0 of {60 - pattern.ended}")


def test_layers_are_called_by_their_names_and_one_after_the_other():
    networks = Networks()
    networks.learn(TASK)
    names = [layer.name for layer in networks.of(TASK)]
    entries = trials(lambda plan, method, lr: plan[1] == "B" or plan[4] == "B")
    found = {pattern.text for pattern in patterns(entries, networks)}
    assert found == {f"{names[1]} at B", f"{names[4]} at B"}


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        (lambda plan, method, lr: False, "nan"),
        (lambda plan, method, lr: hash(lr) % 7 == 0, "nan"),
        (lambda plan, method, lr: lr > 0.03, "lost worker"),
    ],
    ids=["nothing failed", "failures at random", "the machine is to blame"],
)
def test_nothing_is_said_where_nothing_explains_the_failures(fails, reason):
    assert patterns(trials(fails, reason=reason), Networks()) == []
