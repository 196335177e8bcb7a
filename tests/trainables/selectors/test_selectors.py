"""Claims about selectors: every registered one passes the same conformance suite, and the fixed
ones reproduce the printed rows of docs/methods.md 4.3 and 4.4."""

from __future__ import annotations

import itertools
import math
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfront.trainables.cost import CostTable, cost_table, task_cost_table
from bitfront.trainables.errors import UserError
from bitfront.trainables.plan import check_plan
from bitfront.trainables.selectors import (
    RULES,
    SELECTORS,
    Selection,
    SelectionSpec,
    Selector,
    plan_for_budget,
    select,
)
from bitfront.trainables.selectors.base import flops_saved
from bitfront.trainables.task import Task

pytestmark = pytest.mark.slow

BUDGETS = st.floats(0.0, 100.0)
NAMES = sorted(SELECTORS)
# One with a method of its own removes channels and makes no plan.
PLANNING = [name for name in NAMES if SELECTORS.get(name).method is None]
TABLES = ("cresnet20", "cresnet", "mlp")
# A network of five layers to plan, trained for a moment.
TASK = {
    "dataset": "digits",
    "model": {"name": "mlp", "depth": 6, "width": 12},
    "epochs": 2,
    "batch_size": 32,
    "optimizer": {"lr": 0.02},
    "subset": 160,
}
QUICK = {"hawq": {"probes": 3}, "iterative": {"epochs": 1}}


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


def spec_of(name: str) -> SelectionSpec:
    params = dict(QUICK.get(name, {}))
    return SelectionSpec(selector=name, params=params, task=Task.model_validate(TASK))


@cache
def selection_of(name: str) -> Selection:
    return select(spec_of(name))


class Case:
    """A selector at work: on any network where it looks at none, else on the one of TASK."""

    def __init__(self, name: str, model: str, seed: int) -> None:
        selector = SELECTORS.get(name)()
        self.nested = type(selector).plan is Selector.plan
        if selector.trained:
            self.table = task_cost_table(spec_of(name).task)
            self.order, self.pairs = selection_of(name).order, selection_of(name).pairs
        else:
            self.pairs = []
            self.table = table_of(model)
            self.order = list(selector.order(self.table, seed))
        self.selector, self.seed = selector, seed
        self.dearest = max(flops_saved(self.table, "B"))
        self.cheapest = pct(self.table, "B" * len(self.order))

    def plan(self, budget: float, rule: str) -> str:
        pairs = {"pairs": self.pairs} if self.pairs else {}
        return self.selector.plan(self.table, self.order, budget, rule, seed=self.seed, **pairs)


CASES = st.builds(
    Case,
    st.sampled_from(PLANNING),
    st.sampled_from(TABLES),
    st.integers(0, 50),
)


# --- conformance --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_selector_is_declared(name: str) -> None:
    selector = SELECTORS.get(name)
    assert selector.name == name
    assert selector.doc
    for key, param in selector.params.items():
        assert param.domain.contains(param.default), key
        assert param.doc, key


@pytest.mark.parametrize("name", NAMES)
def test_an_order_has_every_layer_once_and_depends_on_the_seed_alone(name) -> None:
    if SELECTORS.get(name).trained:
        found = selection_of(name)
        again = select(spec_of(name))
        assert sorted(found.order) == list(range(5))
        assert (again.order, again.scores) == (found.order, found.scores)
        assert len(found.scores) == len(found.layers) == 5
        assert found.score
        assert found.training_epochs > 0
        return
    for model, seed in itertools.product(TABLES, range(5)):
        table = table_of(model)
        order = list(SELECTORS.get(name)().order(table, seed))
        assert sorted(order) == list(range(len(table.plan_layers)))
        assert list(SELECTORS.get(name)().order(table, seed)) == order


@settings(deadline=None, max_examples=200)
@given(case=CASES, budget=BUDGETS, rule=st.sampled_from(RULES))
def test_a_plan_is_valid_and_the_same_every_time(case: Case, budget: float, rule: str) -> None:
    plan = case.plan(budget, rule)
    check_plan(plan, case.table.plan_layers)
    assert case.plan(budget, rule) == plan


@settings(deadline=None, max_examples=200)
@given(case=CASES, budget=BUDGETS)
def test_at_least_stays_above_the_budget_and_one_more_layer_would_not(
    case: Case, budget: float
) -> None:
    plan = case.plan(budget, "at_least")
    count = plan.count("B")
    assert pct(case.table, plan) >= budget
    if count == len(plan):
        return
    assert pct(case.table, plan) < budget + case.dearest
    if case.nested:
        assert plan == along(case.table, case.order, count)
        assert pct(case.table, along(case.table, case.order, count + 1)) < budget


@settings(deadline=None, max_examples=200)
@given(case=CASES, budget=BUDGETS)
def test_nearest_is_as_near_as_any_number_of_layers_in_that_order(
    case: Case, budget: float
) -> None:
    plan = case.plan(budget, "nearest")
    away = abs(pct(case.table, plan) - budget)
    if budget > case.cheapest:
        assert away <= case.dearest / 2 + 1e-9
    if case.nested:
        assert plan == along(case.table, case.order, plan.count("B"))
        chain = (along(case.table, case.order, k) for k in range(len(case.order) + 1))
        assert away == min(abs(pct(case.table, p) - budget) for p in chain)


@settings(deadline=None, max_examples=200)
@given(case=CASES, rule=st.sampled_from(RULES), budgets=st.tuples(BUDGETS, BUDGETS).map(sorted))
def test_a_larger_budget_never_gives_a_cheaper_plan(case: Case, rule: str, budgets) -> None:
    """A plan that is made anew for each budget may cost up to a layer more than it must."""
    small, large = (case.plan(b, rule) for b in budgets)
    if case.nested or budgets[1] - budgets[0] >= case.dearest:
        assert pct(case.table, small) <= pct(case.table, large)


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


def test_first_and_last_are_mirror_images() -> None:
    table = table_of("cresnet20")
    first, last = (list(SELECTORS.get(n)().order(table, 0)) for n in ("first", "last"))
    assert first == list(range(18))
    assert last == first[::-1]


@pytest.mark.parametrize(("old", "name"), [("front", "first"), ("rear", "last")])
def test_names_of_before_are_accepted_and_not_listed(old: str, name: str) -> None:
    assert SELECTORS.get(old) is SELECTORS.get(name)
    assert old in SELECTORS
    assert old not in SELECTORS.names()


@pytest.mark.parametrize(
    ("budget", "layers", "achieved"),
    [(80, 3, 83.18), (60, 7, 63.55), (40, 11, 41.12), (20, 15, 21.49), (10, 17, 10.28)],
)
@pytest.mark.parametrize("name", ["first", "last"])
def test_first_and_last_reproduce_the_printed_rows(name, budget, layers, achieved) -> None:
    table = table_of("cresnet20")
    order = SELECTORS.get(name)().order(table, 0)
    plan = plan_for_budget(table, order, budget, "at_least")
    assert plan == ("B" * layers).ljust(18, "F")[:: 1 if name == "first" else -1]
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


# --- kept work ----------------------------------------------------------------------------------


def test_what_was_found_is_found_again_without_work(tmp_path, monkeypatch) -> None:
    first = select(spec_of("mixbin-grad"), tmp_path)
    monkeypatch.setattr(
        "bitfront.trainables.selectors.scores.run", lambda *a: pytest.fail("worked")
    )
    assert select(spec_of("mixbin-grad"), tmp_path) == first
    (file,) = tmp_path.iterdir()
    file.write_text("damaged")
    with pytest.raises(pytest.fail.Exception, match="worked"):
        select(spec_of("mixbin-grad"), tmp_path)


def test_selectors_share_one_pretraining(tmp_path, monkeypatch) -> None:
    select(spec_of("mixbin-grad"), pretrained=tmp_path)
    monkeypatch.setattr(
        "bitfront.trainables.training.pretraining.pretrain", lambda *a: pytest.fail("trained")
    )
    found = select(spec_of("mixbin-loss"), pretrained=tmp_path)
    assert found.order == selection_of("mixbin-loss").order
    assert found.training_epochs == 2


def test_the_identity_of_a_selection_is_what_it_depends_on() -> None:
    spec = spec_of("mixbin-grad")
    same = spec.model_copy(update={"params": {"direction": "fp2bin"}})
    elsewhere = spec.task.model_copy(update={"data_dir": "/elsewhere"})
    assert same.fingerprint() == spec.fingerprint()
    assert spec.model_copy(update={"task": elsewhere}).fingerprint() == spec.fingerprint()
    longer = spec.task.model_copy(update={"epochs": 3})
    others = [
        spec.model_copy(update=change)
        for change in (
            {"params": {"direction": "bin2fp"}},
            {"task": longer},
            {"seed": 1},
            {"level": "W"},
            {"method": "bnn+"},
        )
    ]
    assert len({s.fingerprint() for s in [spec, *others]}) == 6


def test_a_plan_for_another_network_is_refused() -> None:
    with pytest.raises(UserError, match="ranked 5 layers, the network has 18"):
        selection_of("mixbin-grad").plan(table_of("cresnet20"), 50.0, "at_least", "B", 0)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_pseudo_random_exchanges_a_share_of_the_binary_layers(share: float) -> None:
    """Of 18 layers of which 16 save the same, those 16: an exchange costs nothing."""
    table = table_of("cresnet20")
    order = [i for i in range(18) if i not in (6, 12)] + [6, 12]
    kept = plan_for_budget(table, order, 50.0)
    selector = SELECTORS.get("pseudo-random")({"share": share})
    count = kept.count("B")
    for seed in range(20):
        plan = selector.plan(table, order, 50.0, seed=seed)
        if any(plan[i] == "B" for i in (6, 12)):
            continue
        gone = sum(a == "B" and b == "F" for a, b in zip(kept, plan, strict=True))
        assert gone == min(math.ceil(share * count), 18 - count)
        assert plan.count("B") == count
