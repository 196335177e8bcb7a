"""What a front shows, in words: only what its points say, with the effects that made the trials."""

import itertools
from dataclasses import replace

import pytest

from bitfront.dashboards.pages.insights import rules
from bitfront.search.results.view import TrialView

pytestmark = pytest.mark.fast


def planned(make_view, front):
    """A search of all plans of four layers at two widths: a binary second layer takes 4 points, one
    elsewhere 0.5 points, twice the width adds 2 points."""
    trials = []
    for number, (letters, width) in enumerate(
        itertools.product(itertools.product("FB", repeat=4), (4, 8))
    ):
        plan = "".join(letters)
        value = 0.9 - 0.035 * (plan[1] == "B") - 0.005 * plan.count("B") + 0.02 * (width == 8)
        cost = 10.0 * plan.count("F") + width
        trials.append(
            TrialView(
                f"t{plan}{width}", number, "complete", "bnn", plan, "net", 0,
                {"method": "bnn"}, {"val_accuracy": value, "flops_pct": cost}, 3,
                settings={"width": str(width)},
            )
        )  # fmt: skip
    return replace(make_view(), trials=trials, points=[], front=front)


def test_a_rule_says_what_all_points_keep_and_what_it_does(make_view):
    found = rules(planned(make_view, ["tBFBB4", "tFFBB4", "tFFBB8", "tFFFB8"]))
    second = next(rule for rule in found if rule.text.startswith("stages.0.1.conv"))
    assert second.text == "stages.0.1.conv is in full precision in 4 of 4 points"
    assert second.trials == ["tBFBB4", "tFFBB4", "tFFBB8", "tFFFB8"]
    assert "takes 4 ± " in second.effect
    assert found[0] is second  # the greatest effect first
    width = next(rule for rule in found if rule.text.startswith("width"))
    assert width.text == "width is 8 from 28 % on (2 points), and 4 below (2)"
    assert "Twice the width adds 2 ± " in width.effect


def test_what_changes_to_and_fro_along_the_front_is_no_rule(make_view):
    found = rules(planned(make_view, ["tBFBB4", "tFFBB4", "tBFFB4", "tFFFB8"]))
    assert not [rule for rule in found if "stages.0.0.conv" in rule.text]


def test_three_points_are_no_rule(make_view):
    assert rules(planned(make_view, ["tBBBB4", "tFFBB4", "tFFFF8"])) == []
