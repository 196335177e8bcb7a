"""A point of the space becomes a trial's spec: conditional parameters, models, plans, limits."""

import random

from bitfront.search.config.bounds import cost_bounds
from bitfront.spaces.costs import costs_of
from bitfront.spaces.space import random_value
from bitfront.trainables.cost import task_cost_table


def walk(space, seed=0, **fixed):
    rng = random.Random(seed)
    drawn = {}

    def draw(name, domain):
        drawn[name] = fixed.get(name, random_value(domain, rng))
        return drawn[name]

    return space.walk(draw), drawn


def test_a_methods_parameters_are_drawn_for_that_method_only(make_space):
    _, space = make_space()
    spec, drawn = walk(space, method="bnn++")
    assert "bnn++.mu_end" in drawn
    assert set(spec.params) == {"mu_end"}
    spec, drawn = walk(space, method="bnn")
    assert "bnn++.mu_end" not in drawn
    assert spec.params == {}


def test_the_plan_is_as_long_as_the_model_that_was_drawn(make_space):
    _, space = make_space("space.model.depth=[3, 5, 8]", "space.model.width={int: [4, 32]}")
    lengths = set()
    for seed in range(20):
        spec, _ = walk(space, seed)
        layers = task_cost_table(spec.task).plan_layers
        assert len(spec.plan) == len(layers) == spec.task.model.params["depth"] - 1
        lengths.add(len(spec.plan))
    assert lengths == {2, 4, 7}


def test_a_plan_per_stage_gives_a_stage_one_letter(make_space):
    _, space = make_space(
        "task.model={name: cresnet, depth: 14, width: 4}", "space.plan={per: stage}"
    )
    spec, drawn = walk(space, 3)
    assert {spec.plan[i : i + 4] for i in (0, 4, 8)} <= {"FFFF", "BBBB"}
    assert sum(name.startswith("plan.") for name in drawn) == 3


def test_a_plan_per_block_gives_a_block_one_letter(make_space):
    _, space = make_space(
        "task.model={name: cresnet, depth: 14, width: 4}", "space.plan={per: block}"
    )
    spec, drawn = walk(space, 5)
    assert all(spec.plan[i] == spec.plan[i + 1] for i in range(0, 12, 2))
    assert sum(name.startswith("plan.") for name in drawn) == 6


def test_a_fixed_plan_is_the_same_everywhere(make_space):
    _, space = make_space("space.plan=FBBF")
    assert {walk(space, s)[0].plan for s in range(5)} == {"FBBF"}


def test_a_selector_makes_the_plan_for_the_drawn_budget(make_space):
    _, space = make_space("space.plan={selector: rear, budget: [90, 60]}")
    spec, _ = walk(space, **{"plan.budget": 60})
    assert spec.plan.startswith("F")
    assert spec.plan.endswith("B")
    assert costs_of(spec)["flops_pct"] >= 60


def test_full_precision_in_the_space_gets_no_plan(make_space):
    _, space = make_space("space={method: [fp, bnn], plan: {per: layer}}")
    spec, drawn = walk(space, method="fp")
    assert set(spec.plan) == {"F"}
    assert not any(name.startswith("plan.") for name in drawn)


def test_the_size_of_a_finite_space_is_the_number_of_its_points(make_space):
    _, space = make_space("space={method: [bnn, bc], plan: {per: layer}, batch_size: [16, 32]}")
    assert space.size() == 2 * 2 * 2**4


def test_one_part_at_a_time_and_one_level_for_all(make_space):
    _, only = make_space("space.plan={only: block, level: B}")
    table = task_cost_table(only.task)
    names = only.plan.names(table)
    assert names == list(dict.fromkeys(layer.block for layer in table.plan_layers))
    for name in names:
        plan = only.plan.make(table, lambda key, domain, name=name: name, 0)
        layers = zip(table.plan_layers, plan, strict=True)
        assert {layer.block for layer, level in layers if level == "B"} == {name}
        assert set(plan) <= {"F", "B"}
        assert only.plan.chosen(table, plan) == name
    assert only.plan.size(table) == len(names)
    low, high = cost_bounds(only)["flops"]
    costs = [table.totals(only.plan.make(table, lambda k, d, n=n: n, 0))["flops"] for n in names]
    assert (low, high) == (min(costs), max(costs))
    _, whole = make_space("space.plan={per: model, levels: [W, B]}")
    drawn = {}
    plan = whole.plan.make(table, lambda key, domain: drawn.setdefault(key, "W"), 0)
    assert (drawn, set(plan)) == ({"plan.all": "W"}, {"W"})
    assert whole.plan.size(table) == 2
