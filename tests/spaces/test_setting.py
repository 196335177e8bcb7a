"""A setting names one point of a space, or says which key it leaves open or has outside."""

import pytest

from bitfront.spaces.setting import SettingProblem, points, value_of

SELECTED = "space={method: bnn, plan: {selector: [first, last], budget: [100, 60, 1]}}"
STARTED = "search.start_from={selector: [first, last], budgets: [60, 30]}"


def named(space, shared=None, **where):
    where = {key.replace("__", "."): value for key, value in where.items()}
    return points(space, where, shared or {}, 0)


def test_a_setting_is_the_point_that_the_same_values_draw(make_space):
    _, space = make_space()
    given = {"method": "bnn++", "plan": "FBBF", "optimizer.lr": 0.01, "bnn++.mu_end": 30}
    ((drawn, spec),) = points(space, given, {}, 0)
    assert (spec.method, spec.plan, spec.params) == ("bnn++", "FBBF", {"mu_end": 30.0})
    assert spec.task.optimizer.lr == 0.01
    assert spec == space.walk(lambda name, _domain: drawn[name])


def test_parameters_of_other_methods_do_not_count(make_space):
    _, space = make_space()
    ((drawn, spec),) = named(space, method="bnn", plan="B", optimizer__lr=0.01)
    assert spec.plan == "BBBB"
    assert "bnn++.mu_end" not in drawn


@pytest.mark.parametrize(
    ("where", "message", "key"),
    [
        ({"method": "bnn++", "plan": "B"}, "leaves optimizer.lr, bnn++.mu_end open", None),
        ({"method": "bnn", "optimizer.lr": 0.01}, "leaves plan open", None),
        ({"method": "pq", "plan": "B", "optimizer.lr": 0.01}, "pq is not in the space", "method"),
        (
            {"method": "bnn", "plan": "B", "optimizer.lr": 0.5},
            "0.5 is not in the space: 0.001..0.03",
            "optimizer.lr",
        ),
        (
            {"method": "bnn", "plan": "B", "optimizer.lr": 0.01, "epochs": 160},
            "160 is not in the space, which has 3 for all",
            "epochs",
        ),
        (
            {"method": "bnn", "plan": "B", "optimizer.lr": 0.01, "bnn++.mu_end": 30},
            "no parameter of method bnn",
            "bnn++.mu_end",
        ),
        (
            {"method": "bnn", "plan": "B", "optimizer.lr": 0.01, "optimiser.lr": 1},
            "is no key of this space, did you mean 'optimizer.lr'",
            "optimiser.lr",
        ),
        ({"method": "bnn", "plan": "FB", "optimizer.lr": 0.01}, "2 letters for 4 layers", "plan"),
    ],
)
def test_what_is_open_or_outside_is_named(make_space, where, message, key):
    _, space = make_space()
    with pytest.raises(SettingProblem) as caught:
        points(space, where, {}, 0)
    assert message in caught.value.message
    assert caught.value.key == key


def test_what_the_space_fixes_may_be_named(make_space):
    _, space = make_space("space={method: bnn, plan: B, batch_size: [8, 16]}")
    ((drawn, _),) = named(space, method="bnn", plan="B", batch_size=8, epochs=3, bnn__scale="none")
    assert drawn == {"batch_size": 8}


def test_shared_values_count_where_they_are_drawn_and_a_row_overrides_them(make_space):
    _, space = make_space()
    shared = {"plan": "F", "optimizer.lr": 0.01, "bnn++.mu_end": 30}
    ((drawn, spec),) = named(space, shared, method="bnn", plan="B")
    assert spec.plan == "BBBB"
    assert drawn["optimizer.lr"] == 0.01
    assert "bnn++.mu_end" not in drawn


def test_a_plan_is_named_by_selector_and_budget_or_by_its_letters(make_space):
    _, space = make_space(SELECTED)
    ((_, chosen),) = named(space, plan__selector="last", plan__budget=60.0)
    assert 0 < chosen.plan.count("B") < 4
    ((_, full),) = named(space, plan="F")
    ((_, binary),) = named(space, plan="B")
    assert (full.plan, binary.plan) == ("FFFF", "BBBB")
    with pytest.raises(SettingProblem, match="no selector and budget"):
        named(space, plan="W")


def test_a_search_over_free_plans_knows_the_plans_it_starts_from(make_space):
    _, space = make_space(STARTED)
    where = {"method": "bnn", "optimizer__lr": 0.01}
    ((drawn, spec),) = named(space, plan__selector="first", plan__budget=60, **where)
    assert spec.plan.startswith("B")
    assert drawn["plan." + next(k for k in drawn if k.startswith("plan.")).partition(".")[2]] == "B"
    with pytest.raises(SettingProblem, match="is none of search"):
        named(space, plan__selector="first", plan__budget=40, **where)
    with pytest.raises(SettingProblem, match="starts from no selector"):
        named(make_space()[1], plan__selector="first", plan__budget=40, **where)


def test_each_draw_of_a_random_selector_is_a_point(make_space):
    seeds = "space={method: bnn, plan: {selector: random, budget: 60, seeds: [0, 1, 2]}}"
    found = named(make_space(seeds)[1], plan__seed="each")
    assert [drawn["plan.seed"] for drawn, _ in found] == [0, 1, 2]
    with pytest.raises(SettingProblem, match="there are no draws"):
        named(make_space(SELECTED)[1], plan__seed="each")


def test_a_trial_knows_its_value_at_every_kind_of_key(make_space):
    _, space = make_space("task.model.width=16")
    given = {"method": "bnn++", "plan": "B", "optimizer.lr": 0.01, "bnn++.mu_end": 30.0}
    ((_, spec),) = points(space, given, {}, 0)
    assert value_of(spec, "method") == "bnn++"
    assert value_of(spec, "bnn++.mu_end") == 30.0
    assert value_of(spec, "bnn.scale") is None
    assert value_of(spec, "model.activation") == "binrelu"
    assert value_of(spec, "optimizer.lr") == 0.01
    assert value_of(spec, "batch_size") == 32
    assert value_of(spec, "plan.all") == "B"
