"""Claims about schedules: they are written in fractions of training and hit both ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfront.trainables.training.schedules.values import SHAPES, Schedule, Steps, fraction

MOVING = ["linear", "cosine", "exponential"]


def test_the_first_step_is_fraction_zero_and_the_last_is_one() -> None:
    assert fraction(0, 100) == 0.0
    assert fraction(99, 100) == 1.0
    assert fraction(33, 100) == pytest.approx(1 / 3)


def test_a_run_of_one_step_is_at_its_start() -> None:
    assert fraction(0, 1) == 0.0


@pytest.mark.parametrize("shape", MOVING)
def test_a_schedule_hits_both_ends(shape: str) -> None:
    schedule = Schedule(5.0, 30.0, shape)
    assert schedule.at(0.0) == pytest.approx(5.0)
    assert schedule.at(1.0) == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("shape", "quarter", "half"),
    [
        ("constant", 2.0, 2.0),
        ("linear", 6.0, 10.0),
        ("cosine", 2 + 16 * 0.1464466, 10.0),
        ("exponential", 2 * 9**0.25, 6.0),
    ],
)
def test_a_schedule_passes_through_the_points_of_its_shape(
    shape: str, quarter: float, half: float
) -> None:
    schedule = Schedule(2.0, 18.0, shape)
    assert schedule.at(0.25) == pytest.approx(quarter, rel=1e-6)
    assert schedule.at(0.5) == pytest.approx(half)


@pytest.mark.parametrize("shape", MOVING)
def test_a_schedule_waits_until_begin_and_is_done_at_until(shape: str) -> None:
    schedule = Schedule(1.0, 9.0, shape, begin=0.2, until=0.6)
    assert schedule.at(0.0) == schedule.at(0.2) == 1.0
    assert 1.0 < schedule.at(0.4) < 9.0
    assert schedule.at(0.6) == pytest.approx(9.0)
    assert schedule.at(1.0) == schedule.at(0.6)


def test_an_instant_schedule_jumps() -> None:
    schedule = Schedule(1.0, 9.0, "linear", begin=0.5, until=0.5)
    assert [schedule.at(f) for f in (0.0, 0.49, 0.5, 1.0)] == [1.0, 1.0, 9.0, 9.0]


@given(
    ends=st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)),
    shape=st.sampled_from([*SHAPES, "exponential"]),
    span=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    where=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
)
def test_a_schedule_moves_one_way_and_stays_between_its_ends(ends, shape, span, where) -> None:
    (start, end), (begin, until) = ends, span
    schedule = Schedule(start, end, shape, begin, until)
    early, late = (schedule.at(f) for f in where)
    slack = 1e-9 * max(ends)
    assert min(ends) - slack <= early <= max(ends) + slack
    assert (late - early) * (ends[1] - ends[0]) >= -slack * abs(ends[1] - ends[0])


def test_fewer_steps_rescale_the_schedule() -> None:
    schedule = Schedule(5.0, 30.0, "cosine", until=0.7)
    short = [schedule.at(fraction(t, 11)) for t in range(11)]
    long = [schedule.at(fraction(t, 101)) for t in range(101)]
    assert short == pytest.approx(long[::10])


def test_rho_crosses_one_at_9_91_percent() -> None:
    schedule = Schedule(0.01, 10.0, "linear")
    assert schedule.at(0.0990) < 1.0 < schedule.at(0.0992)


def test_steps_multiply_at_their_fractions() -> None:
    steps = Steps(0.1, (0.5, 0.75), 0.1)
    values = [steps.at(f) for f in (0.0, 0.499, 0.5, 0.749, 0.75, 1.0)]
    assert values == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 2.0, "wavy"), "unknown schedule shape 'wavy'"),
        ((1.0, 2.0, "linear", 0.6, 0.5), "0 <= begin <= until <= 1"),
        ((1.0, 2.0, "linear", -0.1, 0.5), "0 <= begin <= until <= 1"),
        ((1.0, 2.0, "linear", 0.0, 1.1), "0 <= begin <= until <= 1"),
        ((0.0, 2.0, "exponential"), "positive ends"),
        ((2.0, 0.0, "exponential"), "positive ends"),
    ],
)
def test_an_impossible_schedule_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(*arguments)


def test_steps_fall_by_ten_as_bop_does_on_cifar() -> None:
    """BayesBiNN, Table 9: gamma 1e-4, times 0.1 every 100 of 500 epochs."""
    schedule = Schedule(1e-4, 1e-8, "steps")
    for epoch in range(500):
        expected = 1e-4 * 0.1 ** (epoch // 100)
        assert schedule.at((epoch + 0.5) / 500) == pytest.approx(expected)
    assert schedule.at(0.0) == pytest.approx(1e-4)
    assert schedule.at(0.2) == pytest.approx(1e-5)
    assert schedule.at(1.0) == pytest.approx(1e-8)


def test_steps_rise_too_and_end_at_until() -> None:
    schedule = Schedule(2.0, 200.0, "steps", until=0.6)
    values = [schedule.at(f) for f in (0.0, 0.19, 0.21, 0.39, 0.41, 1.0)]
    assert values == pytest.approx([2, 2, 20, 20, 200, 200])
    assert Schedule(5.0, 30.0, "steps").at(0.6) == 30.0  # one step, since 30 is six times 5


def test_steps_need_positive_ends() -> None:
    with pytest.raises(ValueError, match="a steps schedule needs positive ends"):
        Schedule(1.0, 0.0, "steps")
