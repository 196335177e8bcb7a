"""Claims about fronts: mostly invariants, checked on grids where ties and duplicates are common."""

import itertools
import math
import subprocess
import sys
from collections.abc import Sequence

import moocore
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bitfront.search.front import (
    Front,
    Objective,
    best_under_budget,
    cheapest_reaching,
    contributions,
    dominates,
    hypervolume,
    hypervolume_share,
    knee,
    non_dominated,
)

ACCURACY = Objective("accuracy", maximize=True)
FLOPS = Objective("flops", maximize=False)
PAIR = (ACCURACY, FLOPS)
NAN = math.nan

Point = tuple[float, ...]
Case = tuple[tuple[Objective, ...], list[Point]]


@st.composite
def cases(draw: st.DrawFn, dimensions: Sequence[int] = (1, 2, 3), nan: bool = False) -> Case:
    """Objectives of any directions and points on a 7-grid or anywhere between 0 and 6."""
    n = draw(st.sampled_from(dimensions))
    objectives = tuple(Objective(f"o{i}", draw(st.booleans())) for i in range(n))
    value = st.integers(0, 6).map(float) | st.floats(0, 6).map(lambda x: round(x, 3))
    if nan:
        value |= st.just(NAN)
    return objectives, draw(st.lists(st.tuples(*[value] * n), max_size=12))


# Three minimised objectives where a point's neighbours in any order of sorting do not decide: the
# fourth point is covered by the first alone, the last covers only a part of what is dearer.
THREE = tuple(Objective(name, maximize=False) for name in "abc")
TANGLE: Case = (
    THREE,
    [(0, 5, 0), (1, 0, 9), (9, 0, 0.5), (2, 6, 1), (0, 4.5, 2), (5, 4, 3), (4, 3, 1)],
)


def reference_of(objectives: Sequence[Objective], strictness: float = 1.0) -> list[float]:
    """A point worse than the grid by `strictness`."""
    return [-strictness if o.maximize else 6 + strictness for o in objectives]


def is_nan(point: Point) -> bool:
    return any(map(math.isnan, point))


# Dominance


def test_dominance_needs_no_worse_everywhere_and_better_somewhere() -> None:
    assert dominates((0.9, 10), (0.8, 10), PAIR)
    assert dominates((0.9, 5), (0.8, 10), PAIR)
    assert not dominates((0.9, 10), (0.9, 10), PAIR)
    assert not dominates((0.9, 11), (0.8, 10), PAIR)


def test_nan_never_dominates_and_is_always_dominated() -> None:
    assert not dominates((NAN, 0), (0.0, 10), PAIR)
    assert dominates((0.0, 10), (NAN, 0), PAIR)
    assert not dominates((NAN, 0), (NAN, 0), PAIR)
    assert non_dominated([(NAN, 0), (0.5, 10), (0.6, NAN)], PAIR) == [1]


def test_infinite_values_take_part_in_dominance() -> None:
    assert non_dominated([(0.5, math.inf), (0.4, math.inf), (0.1, 3)], PAIR) == [0, 2]


def test_three_objectives_compare_every_pair() -> None:
    assert non_dominated(TANGLE[1], THREE) == [0, 1, 2, 4, 6]


def test_of_equal_points_only_the_first_is_on_the_front() -> None:
    assert non_dominated([(0.1, 1), (0.9, 10), (0.9, 10), (0.1, 1)], PAIR) == [0, 1]


@given(cases(nan=True))
@example(TANGLE)
def test_no_front_member_is_dominated(case: Case) -> None:
    objectives, points = case
    for i in non_dominated(points, objectives):
        assert not is_nan(points[i])
        assert not any(dominates(p, points[i], objectives) for p in points)


@given(cases(nan=True))
@example(TANGLE)
def test_every_point_off_the_front_is_nan_dominated_or_a_later_duplicate(case: Case) -> None:
    objectives, points = case
    front = non_dominated(points, objectives)
    assert front == sorted(front)
    for i in set(range(len(points))) - set(front):
        assert (
            is_nan(points[i])
            or any(dominates(points[j], points[i], objectives) for j in front)
            or any(points[j] == points[i] for j in front if j < i)
        )


# The incremental front


@given(cases(nan=True))
@example(TANGLE)
def test_incremental_front_equals_the_front_of_all_points(case: Case) -> None:
    objectives, points = case
    front = Front(objectives)
    for i, point in enumerate(points):
        before = front.items
        changed = front.add(str(i), point)
        assert changed == (front.items != before)
        assert sorted(front.keys, key=int) == [
            str(j) for j in non_dominated(points[: i + 1], objectives)
        ]
    assert all(point == points[int(key)] for key, point in front.items)
    assert [v[-1] for _, v in front.items] == sorted(v[-1] for _, v in front.items)
    reference = reference_of(objectives)
    assert front.hypervolume(reference) == pytest.approx(
        hypervolume(points, reference, objectives), abs=1e-9
    )


def test_a_point_enters_the_front_once_and_removes_what_it_dominates() -> None:
    front = Front(PAIR)
    assert front.add("a", (0.8, 10))
    assert not front.add("a", (0.8, 10))
    assert not front.add("nan", (NAN, 1))
    assert front.add("cheap", (0.5, 2))
    assert front.add("better", (0.9, 10))
    assert front.items == [("cheap", (0.5, 2.0)), ("better", (0.9, 10.0))]
    assert front.keys == ["cheap", "better"]
    assert len(front) == 2
    assert "better" in front
    assert "a" not in front


def test_a_key_cannot_hold_two_places() -> None:
    front = Front(PAIR)
    front.add("a", (0.8, 10))
    with pytest.raises(ValueError, match="'a' is on the front already"):
        front.add("a", (0.9, 20))


# Hypervolume


def test_hypervolume_of_a_hand_drawn_front() -> None:
    # Two steps: (10 - 2) * 0.5 and (10 - 6) * (0.75 - 0.5); the third point is dominated.
    points = [(0.75, 6), (0.5, 2), (0.5, 7)]
    assert hypervolume(points, (0, 10), PAIR) == 8 * 0.5 + 4 * 0.25
    assert hypervolume_share(points, (0, 10), (1, 0), PAIR) == pytest.approx(0.5)


def test_hypervolume_of_nothing_is_zero() -> None:
    assert hypervolume([], (0, 10), PAIR) == 0.0
    assert hypervolume_share([], (0, 10), (1, 0), PAIR) == 0.0
    assert contributions([], (0, 10), PAIR) == []


@pytest.mark.parametrize("point", [(0.9, 10), (0, 5), (0.9, 11), (-0.1, 5), (NAN, 5)])
def test_a_point_not_better_than_the_reference_adds_nothing(point: Point) -> None:
    alone = hypervolume([(0.5, 5)], (0, 10), PAIR)
    assert hypervolume([point], (0, 10), PAIR) == 0.0
    assert hypervolume([(0.5, 5), point], (0, 10), PAIR) == alone


@given(cases(dimensions=(2, 3)), st.sampled_from([1.0, -2.0]))
def test_hypervolume_equals_moocore(case: Case, strictness: float) -> None:
    """A strictness below zero puts the reference among the points."""
    objectives, points = case
    reference = reference_of(objectives, strictness)
    expected = 0.0
    if points:
        maximise = [o.maximize for o in objectives]
        expected = moocore.hypervolume(np.array(points), ref=reference, maximise=maximise)
    assert hypervolume(points, reference, objectives) == pytest.approx(expected, abs=1e-9)


@given(cases(nan=True))
def test_hypervolume_never_shrinks_when_a_point_is_added(case: Case) -> None:
    objectives, points = case
    reference = reference_of(objectives)
    volumes = [hypervolume(points[:n], reference, objectives) for n in range(len(points) + 1)]
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(volumes))


@given(cases(nan=True))
def test_the_front_alone_has_the_hypervolume_of_all_points(case: Case) -> None:
    objectives, points = case
    reference = reference_of(objectives)
    front = [points[i] for i in non_dominated(points, objectives)]
    assert hypervolume(front, reference, objectives) == pytest.approx(
        hypervolume(points, reference, objectives), abs=1e-9
    )


@given(cases())
def test_share_is_between_zero_and_one_and_the_ideal_has_all_of_it(case: Case) -> None:
    objectives, points = case
    reference = reference_of(objectives)
    ideal = [6.0 if o.maximize else 0.0 for o in objectives]
    assert 0 <= hypervolume_share(points, reference, ideal, objectives) <= 1 + 1e-9
    assert hypervolume_share([*points, ideal], reference, ideal, objectives) == pytest.approx(1)


@given(cases(nan=True), st.sampled_from([1.0, -2.0]))
def test_contribution_is_what_is_lost_without_the_point(case: Case, strictness: float) -> None:
    objectives, points = case
    reference = reference_of(objectives, strictness)
    total = hypervolume(points, reference, objectives)
    exclusive = contributions(points, reference, objectives)
    for i, share in enumerate(exclusive):
        rest = hypervolume(points[:i] + points[i + 1 :], reference, objectives)
        assert share == pytest.approx(total - rest, abs=1e-9)
        assert share >= 0
    assert sum(exclusive) <= total + 1e-9


def test_a_dominated_understudy_lowers_the_contribution_of_its_dominator() -> None:
    assert contributions([(0.5, 5)], (0, 10), PAIR) == [2.5]
    assert contributions([(0.5, 5), (0.25, 5)], (0, 10), PAIR) == [1.25, 0.0]
    assert contributions([(0.5, 5), (0.5, 5)], (0, 10), PAIR) == [0.0, 0.0]


# Choosing one point


def test_knee_is_the_bulge_of_the_front() -> None:
    points = [(0.10, 0), (0.50, 90), (0.80, 20), (0.85, 50), (0.90, 100)]
    assert knee(points, PAIR) == 2


def test_knee_of_a_short_front_is_its_best_first_objective() -> None:
    assert knee([(0.5, 1)], PAIR) == 0
    assert knee([(0.5, 1), (0.9, 50), (0.4, 60)], PAIR) == 1


def test_knee_ties_go_to_the_cheaper_point() -> None:
    assert knee([(3, 3), (2, 2), (1, 1), (0, 0)], PAIR) == 3
    assert knee([(10, 10), (9, 6), (4, 1), (0, 0)], PAIR) == 2


def test_knee_of_three_objectives_is_closest_to_the_ideal() -> None:
    three = (ACCURACY, Objective("latency", maximize=False), FLOPS)
    assert knee([(1, 10, 10), (0, 0, 10), (0.9, 2, 1), (0, 5, 0)], three) == 2


@given(cases(nan=True))
def test_knee_is_on_the_front(case: Case) -> None:
    objectives, points = case
    front = non_dominated(points, objectives)
    if front:
        assert knee(points, objectives) in front
    else:
        with pytest.raises(ValueError, match="at least one point"):
            knee(points, objectives)


@given(cases(dimensions=(2, 3)), st.integers(-20, 60))
def test_knee_does_not_depend_on_units(case: Case, exponent: int) -> None:
    objectives, points = case
    if points:
        scaled = [(*rest, math.ldexp(cost, exponent)) for *rest, cost in points]
        assert points[knee(scaled, objectives)] == points[knee(points, objectives)]


def test_budget_buys_the_best_accuracy_that_fits_and_the_cheaper_of_equals() -> None:
    points = [(0.9, 50), (0.8, 20), (0.8, 10), (0.95, 80), (NAN, 1)]
    assert best_under_budget(points, PAIR, 50) == 0
    assert best_under_budget(points, PAIR, 49.9) == 2
    assert best_under_budget(points, PAIR, 5) is None
    assert best_under_budget([], PAIR, 5) is None


def test_accuracy_is_reached_at_the_lowest_cost_and_the_better_of_equals() -> None:
    points = [(0.9, 50), (0.8, 20), (0.85, 20), (0.95, 80), (NAN, 1)]
    assert cheapest_reaching(points, PAIR, 0.9) == 0
    assert cheapest_reaching(points, PAIR, 0.8) == 2
    assert cheapest_reaching(points, PAIR, 0.96) is None


def test_the_cost_need_not_be_the_last_objective() -> None:
    three = (ACCURACY, FLOPS, Objective("bytes", maximize=False))
    points = [(0.9, 50, 1), (0.8, 10, 9)]
    assert best_under_budget(points, three, 20, cost_index=1) == 1
    assert cheapest_reaching(points, three, 0.5) == 0
    assert cheapest_reaching(points, three, 0.5, cost_index=1) == 1


def test_a_minimised_first_objective_is_reached_from_above() -> None:
    loss = (Objective("loss", maximize=False), FLOPS)
    assert cheapest_reaching([(0.5, 1), (0.2, 9)], loss, 0.3) == 1
    assert best_under_budget([(0.5, 1), (0.2, 9)], loss, 10) == 1


# Errors


def test_wrong_lengths_are_named() -> None:
    with pytest.raises(ValueError, match=r"expected 2 values \(accuracy, flops\), got 1"):
        non_dominated([(0.5, 1), (0.5,)], PAIR)
    with pytest.raises(ValueError, match="expected 2 values"):
        dominates((0.5, 1), (0.5, 1, 2), PAIR)
    with pytest.raises(ValueError, match="reference: expected 2 values"):
        hypervolume([], (0,), PAIR)
    with pytest.raises(ValueError, match="expected 2 values"):
        Front(PAIR).add("a", (1,))
    with pytest.raises(ValueError, match="at least one objective"):
        Front([])


def test_impossible_references_and_costs_are_refused() -> None:
    with pytest.raises(ValueError, match="must be finite"):
        hypervolume([], (0, math.inf), PAIR)
    with pytest.raises(ValueError, match="must be better than the reference"):
        hypervolume_share([], (0, 10), (1, 10), PAIR)
    with pytest.raises(ValueError, match="'accuracy' is maximised"):
        best_under_budget([(0.5, 1)], PAIR, 1, cost_index=0)
    with pytest.raises(ValueError, match="cost_index 2"):
        cheapest_reaching([(0.5, 1)], PAIR, 1, cost_index=2)


def test_importing_fronts_loads_nothing_heavy() -> None:
    code = (
        "import sys, search.front; "
        "print(*{'numpy', 'moocore', 'torch', 'ray', 'optuna', 'mlflow', 'plotly'} "
        "& set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
