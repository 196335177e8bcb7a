"""Claims about selectors: every registered one passes the same conformance suite, and the fixed
ones reproduce the printed rows of methods.md 4.3 and 4.4."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.cost import CostTable, cost_table
from trainables.plan import check_plan
from trainables.registry import UserError
from trainables.selectors import RULES, SELECTORS, plan_for_budget

BUDGETS = st.floats(0.0, 100.0)
NAMES = sorted(SELECTORS)
TABLES = ("cresnet20", "cresnet", "mlp")


@cache
def table_of(name: str) -> CostTable:
    params = {"cresnet": {"depth": 8, "width": 5}, "mlp": {"depth": 6, "width": 40}}
    return cost_table(name, params.get(name, {}), (3, 32, 32), 10)


def pct(table: CostTable, plan: str) -> float:
    return table.totals(plan)["flops_pct"]


def along(table: CostTable, order, count: int, level: str = "B") -> str:
    """The first `count` layers of the order binary."""
    chosen = set(list(order)[:count])
    return "".join(level if i in chosen else "F" for i in range(len(table.plan_layers)))


# --- conformance --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_selector_is_declared(name: str) -> None:
    selector = SELECTORS.get(name)
    assert selector.name == name
    assert selector.doc


@pytest.mark.parametrize("model", TABLES)
@pytest.mark.parametrize("name", NAMES)
def test_an_order_has_every_layer_once_and_depends_on_the_seed_alone(name, model) -> None:
    table = table_of(model)
    for seed in range(5):
        order = list(SELECTORS.get(name)().order(table, seed))
        assert sorted(order) == list(range(len(table.plan_layers)))
        assert list(SELECTORS.get(name)().order(table, seed)) == order


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=40)
@given(budget=BUDGETS, seed=st.integers(0, 50), model=st.sampled_from(TABLES))
def test_at_least_stays_above_the_budget_and_one_more_layer_would_not(
    name: str, budget: float, seed: int, model: str
) -> None:
    table = table_of(model)
    order = list(SELECTORS.get(name)().order(table, seed))
    plan = plan_for_budget(table, order, budget, "at_least")
    check_plan(plan, table.plan_layers)
    count = plan.count("B")
    assert plan == along(table, order, count)
    assert pct(table, plan) >= budget
    if count < len(order):
        assert pct(table, along(table, order, count + 1)) < budget


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=40)
@given(budget=BUDGETS, seed=st.integers(0, 50), model=st.sampled_from(TABLES))
def test_nearest_is_as_near_as_any_number_of_layers_in_that_order(
    name: str, budget: float, seed: int, model: str
) -> None:
    table = table_of(model)
    order = list(SELECTORS.get(name)().order(table, seed))
    plan = plan_for_budget(table, order, budget, "nearest")
    assert plan == along(table, order, plan.count("B"))
    distances = [
        abs(pct(table, along(table, order, count)) - budget) for count in range(len(order) + 1)
    ]
    assert distances[plan.count("B")] == min(distances)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=40)
@given(budgets=st.tuples(BUDGETS, BUDGETS).map(sorted), seed=st.integers(0, 50))
def test_a_larger_budget_never_gives_a_cheaper_plan(name, rule, budgets, seed) -> None:
    table = table_of("cresnet20")
    order = list(SELECTORS.get(name)().order(table, seed))
    small, large = (plan_for_budget(table, order, b, rule) for b in budgets)
    assert pct(table, small) <= pct(table, large)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("count", [1, 7, 17])
def test_a_budget_that_is_met_exactly_is_met(rule: str, count: int) -> None:
    table = table_of("cresnet20")
    plan = along(table, range(18), count)
    assert plan_for_budget(table, range(18), pct(table, plan), rule) == plan


@pytest.mark.parametrize("rule", RULES)
def test_the_extreme_budgets_give_the_extreme_plans(rule: str) -> None:
    table = table_of("cresnet20")
    assert plan_for_budget(table, range(18), 0.0, rule) == "B" * 18
    assert plan_for_budget(table, range(18), 100.0, rule) == "F" * 18


def test_the_level_is_the_one_asked_for() -> None:
    table = table_of("cresnet20")
    plan = plan_for_budget(table, range(18), 80.0, level="W")
    assert set(plan) == {"F", "W"}
    assert pct(table, plan) >= 80.0
    count = plan.count("W")
    assert pct(table, along(table, range(18), count + 1, "W")) < 80.0


def test_an_unknown_rule_is_a_user_error() -> None:
    with pytest.raises(UserError, match="unknown budget rule 'exact', one of: at_least, nearest"):
        plan_for_budget(table_of("mlp"), range(5), 50.0, "exact")


# --- the fixed ones -----------------------------------------------------------------------------


def test_random_orders_differ_between_seeds() -> None:
    table = table_of("cresnet20")
    orders = {tuple(SELECTORS.get("random")().order(table, seed)) for seed in range(10)}
    assert len(orders) == 10


def test_front_and_rear_are_mirror_images() -> None:
    table = table_of("cresnet20")
    front, rear = (list(SELECTORS.get(n)().order(table, 0)) for n in ("front", "rear"))
    assert front == list(range(18))
    assert rear == front[::-1]


@pytest.mark.parametrize(
    ("budget", "layers", "achieved"),
    [(80, 3, 83.18), (60, 7, 63.55), (40, 11, 41.12), (20, 15, 21.49), (10, 17, 10.28)],
)
@pytest.mark.parametrize("name", ["front", "rear"])
def test_front_and_rear_reproduce_the_printed_rows(name, budget, layers, achieved) -> None:
    table = table_of("cresnet20")
    order = SELECTORS.get(name)().order(table, 0)
    plan = plan_for_budget(table, order, budget, "at_least")
    assert plan == ("B" * layers).ljust(18, "F")[:: 1 if name == "front" else -1]
    assert round(pct(table, plan), 2) == achieved


@pytest.mark.parametrize(
    ("budget", "achieved"), [(80, 77.57), (60, 60.75), (40, 38.31), (20, 21.49), (10, 10.28)]
)
def test_nearest_over_full_layers_reproduces_the_mixbin_rows(budget, achieved) -> None:
    table = table_of("cresnet20")
    halves = [6, 12]
    order = [i for i in range(18) if i not in halves] + halves
    plan = plan_for_budget(table, order, budget, "nearest")
    assert round(pct(table, plan), 2) == achieved
