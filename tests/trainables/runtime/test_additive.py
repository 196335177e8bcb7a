"""Claims about latency as a sum over layers: the fit, and networks under many plans."""

import numpy as np
import pytest
import torch

from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime import measuring
from bitfront.trainables.runtime.additive import (
    agreement,
    checked_plans,
    effects,
    fitted_plans,
    layer_times,
    predicted,
)
from bitfront.trainables.runtime.measuring import centres, measure
from bitfront.trainables.runtime.planned import Subject

FULL = np.array([0.9, 0.5, 0.4, 0.3, 0.2])
SAVED = np.array([0.6, 0.2, -0.1, 0.1, 0.25])  # B is slower in the third
REST = 1.5


def time_of(plan):
    """A network that is a sum; all-W takes as long as all-F."""
    return REST + sum(f - s * (p == "B") for f, s, p in zip(FULL, SAVED, plan, strict=True))


def test_what_is_fitted_to_sums_is_the_sums():
    whole = {plan: time_of(plan) for plan in fitted_plans(5)}
    full, changes = effects(whole)
    assert full == pytest.approx(time_of("FFFFF"))
    assert changes == pytest.approx(-SAVED)
    layers, rest = layer_times(whole | {"WWWWW": time_of("FFFFF")}, list("abcde"), FULL, 0.3)
    for plan in ("FFFFF", "BBBBB", "WBFBW", "FFFFB"):
        assert predicted(layers, rest, plan) == pytest.approx(time_of(plan))
    assert rest == pytest.approx(0.3 * time_of("FFFFF"))
    assert layers["c"]["B"] > layers["c"]["F"]
    assert min(t for times in layers.values() for t in times.values()) >= 0


def test_the_fit_is_to_plans_of_all_shares_and_checked_with_others():
    fitted = fitted_plans(18)
    assert {"F" * 18, "B" * 18} < set(fitted)
    assert len(fitted) == len(set(fitted)) >= 3 * 19
    shares = sorted(plan.count("B") for plan in fitted[2:])
    assert shares[0] <= 3
    assert shares[-1] >= 15
    checked = checked_plans(18, "FB", 20)
    assert len(checked) == 20
    assert not set(checked) & set(fitted)
    assert checked_plans(1, "FB", 20) == []
    assert fitted_plans(18) == fitted


def test_agreement_is_stated_with_error_and_order():
    layers, rest = {"a": {"F": 2.0, "B": 1.0}, "b": {"F": 4.0, "B": 1.0}}, 0.0
    found = agreement(layers, rest, {"FF": 5.0, "FB": 3.0, "BB": 2.0})
    assert found.error_pct == pytest.approx(100 * (0.2 + 0 + 0) / 3)
    assert found.rank == pytest.approx(1.0)


def test_a_slow_round_is_slow_for_all_and_counts_for_none():
    true = np.array([1.0, 2.0, 4.0])
    rounds = np.array([true, 1.7 * true, true, 3 * true, true * [1, 1, 5]])
    assert centres(rounds) == pytest.approx(true)


@pytest.fixture(scope="module")
def subject():
    return Subject("cresnet", {"depth": 8, "width": 8}, (1, 8, 8), 10)


def test_networks_under_plans_run_as_loaded_ones_do(subject):
    made = subject.at("BFWBFB")
    names = [layer.name for layer in subject.layers]
    assert {*made.kernels, *made.others} == {names[0], names[3], names[5]}
    x = subject.inputs(2)
    assert made.network(x).shape == (2, 10)
    one, two = (dict(net.named_parameters()) for net in (made.network, subject.full))
    assert one[f"{names[1]}.weight"] is two[f"{names[1]}.weight"]
    assert not torch.equal(one[f"{names[2]}.weight"], two[f"{names[2]}.weight"])
    with pytest.raises(UserError, match="level A is not measured"):
        subject.at("AFFFFF")


def test_a_network_that_is_a_sum_is_measured_as_one(subject, monkeypatch):
    asked = []

    def known(calls, seconds):
        asked.extend(calls)
        return {plan: 5.0 - 0.5 * plan.count("B") for plan in calls}

    monkeypatch.setattr(measuring, "side_by_side", known)
    found = measure(subject, "small", "FB", checks=4)
    assert found.agreement.error_pct == pytest.approx(0, abs=1e-6)
    assert found.agreement.plans == 4
    assert found.levels == ["F", "B"]
    assert found.whole == {plan: 5.0 - 0.5 * plan.count("B") for plan in asked}
    assert predicted(found.layers, found.rest, "BBBBBB") == pytest.approx(2.0)
    with pytest.raises(UserError, match="level A cannot be measured"):
        measure(subject, "small", "FBA")
