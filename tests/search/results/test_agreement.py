"""Agreement within two standard errors, and the order of rows."""

import math

import numpy as np
import pytest

from bitfront.search.results.agreement import (
    Mark,
    Measured,
    Order,
    Printed,
    agrees,
    mark,
    measured,
    orders,
    paired,
    standard_error,
)


def test_the_spread_is_the_sample_deviation_and_one_seed_has_none():
    assert measured([0.1, 0.2, 0.3]) == Measured(pytest.approx(0.2), pytest.approx(0.1), 3)
    assert measured([0.5]) == Measured(0.5, None, 1)


def test_the_standard_error_takes_the_spread_of_both():
    ours = Measured(0.5, 0.03, 9)
    assert standard_error(ours, Printed(0.5, 0.04, 4)) == pytest.approx(math.hypot(0.01, 0.02))
    assert standard_error(ours, Printed(0.5)) == pytest.approx(math.hypot(0.01, 0.03))
    assert standard_error(Measured(0.5, None, 1), Printed(0.5, 0.04)) is None


@pytest.mark.parametrize(("value", "said"), [(0.5447, True), (0.5448, False), (0.4553, True)])
def test_two_standard_errors_are_agreement(value, said):
    # 2 sqrt(0.01^2 + 0.02^2) = 0.04472
    assert agrees(Measured(value, 0.03, 9), Printed(0.5, 0.04, 4)) is said


def test_a_row_is_in_order_between_the_rows_printed_next_to_it():
    pairs = {"a": (0.1, 0.3), "b": (0.2, 0.5), "c": (0.3, 0.4), "d": (0.4, 0.6), "e": (0.4, 0.7)}
    told = orders(pairs)
    assert told == {
        "a": Order.SAME,
        "b": Order.OTHER,
        "c": Order.OTHER,
        "d": Order.SAME,
        "e": Order.SAME,
    }
    assert orders({"a": (0.1, 0.3)}) == {"a": None}
    assert orders({"a": (0.1, 0.3), "b": (0.1, 0.9)}) == {"a": None, "b": None}


def test_what_is_not_comparable_is_never_said_to_agree():
    ours, theirs = Measured(0.5, 0.1, 3), Printed(0.5)
    assert mark(ours, theirs, Order.SAME, comparable=False) == Mark.NOT_COMPARABLE
    assert mark(ours, theirs, Order.OTHER, comparable=True) == Mark.AGREES
    far = Printed(0.9, 0.001)
    one = Measured(0.5, None, 1)
    assert mark(one, far, Order.SAME, comparable=True) == Mark.SAME_ORDER
    assert mark(one, far, None, comparable=True) == Mark.DIFFERS


def test_numbers_without_a_difference_are_agreement_in_95_of_100_cases():
    """Draws of one distribution, ours of 30 seeds and theirs of 20 runs, computed by NumPy: two
    standard errors hold for 95.4 %. With three seeds and one number without a spread it is 82 %."""
    random = np.random.default_rng(0)
    ours, theirs = random.normal(size=(2000, 30)), random.normal(size=(2000, 20))
    printed = [Printed(float(np.mean(b)), float(np.std(b, ddof=1)), 20) for b in theirs]
    told = [agrees(measured(a), p) for a, p in zip(ours.tolist(), printed, strict=True)]
    by_hand = [
        abs(np.mean(a) - np.mean(b)) <= 2 * np.sqrt(np.var(a, ddof=1) / 30 + np.var(b, ddof=1) / 20)
        for a, b in zip(ours, theirs, strict=True)
    ]
    assert told == by_hand
    assert 0.94 < np.mean(told) < 0.97
    few = [
        agrees(measured(a), Printed(float(b)))
        for a, b in zip(ours[:, :3].tolist(), theirs[:, 0], strict=True)
    ]
    assert 0.75 < np.mean(few) < 0.9


def test_pairs_that_are_turned_round_are_named_the_clearest_first():
    rows = {
        "a": (Printed(1.0), Measured(10.0, 0.3, 9)),
        "b": (Printed(2.0), Measured(9.0, 0.4, 9)),
        "c": (Printed(3.0), Measured(9.9, 0.3, 9)),
        "d": (Printed(3.0), Measured(50.0, None, 1)),
    }
    told = paired(rows)
    found = told.turned
    assert told.count == 5  # c and d are printed alike
    assert told.clear == 1  # b below c; d has one seed
    assert [(e.higher, e.lower, e.clear) for e in found] == [("a", "b", True), ("a", "c", False)]
    assert found[0].difference == pytest.approx(1.0)
    assert found[0].errors == pytest.approx(1.0 / math.sqrt(0.09 / 9 + 0.16 / 9))


def test_rows_without_a_difference_are_told_apart_in_at_most_1_of_20_cases():
    """Three seeds each. Two standard errors told 12 in 100 apart."""
    random = np.random.default_rng(0)
    draws = random.normal(size=(2000, 2, 3)).tolist()
    told, coarse = 0, 0
    for a, b in draws:
        rows = {"a": (Printed(1.0), measured(a)), "b": (Printed(2.0), measured(b))}
        found = paired(rows)
        told += found.clear + sum(each.clear for each in found.turned)
        own = np.sqrt(np.var(a, ddof=1) / 3 + np.var(b, ddof=1) / 3)
        coarse += abs(np.mean(a) - np.mean(b)) > 2 * own
    assert 0.02 < told / 2000 <= 0.05
    assert coarse / 2000 > 0.1


def test_chance_is_that_of_welch_s_test():
    """Four seeds against five, deviations 1 and 2, beside SciPy's own test."""
    from scipy.stats import ttest_ind_from_stats

    for gap in np.linspace(0.5, 6, 12):
        rows = {
            "a": (Printed(1.0), Measured(0.0, 1.0, 4)),
            "b": (Printed(2.0), Measured(float(gap), 2.0, 5)),
        }
        told = ttest_ind_from_stats(0.0, 1.0, 4, gap, 2.0, 5, equal_var=False).pvalue < 0.05
        assert bool(paired(rows).clear) == told
