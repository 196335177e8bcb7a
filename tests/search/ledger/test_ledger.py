"""The ledger: what is asked, what is told, what survives. Every sampler goes through the same."""

import json
import random

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import OperationalError

from bitfront.search.config.bounds import violations
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.ledger.reader import read_entries
from bitfront.search.ledger.storage import LedgerStorage
from bitfront.search.samplers.registry import SAMPLERS
from bitfront.search.session.preparation import prepare
from bitfront.spaces.listing import every_point
from bitfront.trainables.errors import UserError
from testbed.simulator import simulate

pytestmark = pytest.mark.slow


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def accuracy_of(entry):
    """A made-up accuracy that rewards full precision, a little less for each binary layer."""
    return 0.95 - 0.02 * entry.spec.plan.count("B")


def finish(ledger, entry):
    metrics = {"epoch": 3, "val_accuracy": accuracy_of(entry), "val_loss": 0.1}
    return ledger.tell(entry.id, "complete", metrics, [metrics])


def drain(ledger, parallel=1):
    """Run the ledger's trials with `parallel` of them open at a time."""
    done, open_ = [], []
    while True:
        while len(open_) < parallel:
            entry = ledger.ask()
            if entry is None:
                break
            open_.append(entry)
        if not open_:
            return done
        done.append(finish(ledger, open_.pop(0)))


def test_a_search_may_name_every_registered_sampler(make_config):
    for name in SAMPLERS:
        assert make_config(f"search.sampler={name}").search.sampler == name


@pytest.mark.parametrize("sampler", SAMPLERS.names())
@pytest.mark.parametrize("parallel", [1, 8])
def test_every_sampler_respects_limits_and_never_repeats_a_point(
    make_space, url, sampler, parallel
):
    config, space = make_space(
        f"search.sampler={sampler}", "search.trials=12", "limits.flops_pct=70"
    )
    ledger = Ledger(url, config, space)
    entries = drain(ledger, parallel)
    assert len(entries) == 12
    assert len({e.id for e in entries}) == 12
    assert all(not violations(config, e.costs) for e in entries)


@pytest.mark.parametrize("sampler", SAMPLERS.names())
def test_every_sampler_survives_failures_and_goes_on_after_a_reopening(make_space, url, sampler):
    config, space = make_space(f"search.sampler={sampler}", "search.trials=12")
    ledger = Ledger(url, config, space)
    for i in range(6):
        entry = ledger.ask()
        if i % 3 == 1:
            ledger.tell(entry.id, "failed", failure="nan", message="loss is nan")
        else:
            finish(ledger, entry)
    again = Ledger(url, config, space)
    drain(again)
    assert len(again.entries) == 12
    assert again.count("failed") == 2
    assert again.count("complete") == 10


@pytest.mark.parametrize("limit", [100, 70])
def test_an_ask_is_a_function_of_the_seed_and_the_ledger(make_space, url, tmp_path, limit):
    words = ["search.sampler=tpe", "search.trials=20", f"limits.flops_pct={limit}"]
    config, space = make_space(*words)
    first = Ledger(url, config, space)
    ids = [e.id for e in drain(first)]
    second = Ledger(f"sqlite:///{tmp_path / 'second.db'}", config, space)
    for _ in range(7):
        finish(second, second.ask())
    resumed = Ledger(f"sqlite:///{tmp_path / 'second.db'}", config, space)
    drain(resumed)
    assert list(resumed.entries) == ids
    other, _ = make_space(*words, "search.seed=1")
    third = Ledger(f"sqlite:///{tmp_path / 'third.db'}", other, space)
    assert [e.id for e in drain(third)] != ids


def test_the_first_two_trials_are_the_ends_of_the_cost_axis(make_space, url):
    config, space = make_space("search.sampler=free-cost")
    ledger = Ledger(url, config, space)
    assert [ledger.ask().spec.plan for _ in range(2)] == ["FFFF", "BBBB"]


def test_a_finite_space_ends_when_every_point_has_been_tried(make_space, url):
    config, space = make_space(
        "space={method: bnn, plan: {per: layer}}", "search.trials=100", "search.sampler=tpe"
    )
    ledger = Ledger(url, config, space)
    entries = drain(ledger)
    assert ledger.exhausted
    assert {e.spec.plan for e in entries} == {
        f"{i:04b}".translate({48: "F", 49: "B"}) for i in range(16)
    }


NINE = "[mixbin-grad, mixbin-loss, front, rear, pseudo-random, random, hawq, adaptive-mbq, bnas]"


def test_a_choice_of_a_plan_may_have_any_number_of_values(make_space, url):
    """Points drawn at random had the shares of eight levels, also where nine selectors are."""
    space = f"space={{method: bnn, plan: {{selector: {NINE}, budget: [100, 70, 50, 1]}}}}"
    config, space = make_space(space, "search.trials=36", "search.sampler=random")
    ledger = Ledger(url, config, space)
    entries = drain(ledger)
    assert ledger.exhausted
    assert len(entries) == len(ledger.proposals.listed) < 36
    points = [ledger.proposals._random_point(random.Random(i)) for i in range(20)]
    assert all(point["plan.selector"] in NINE for point in points)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_points_that_are_hard_to_find_are_found_where_all_can_be_listed(make_space, url, sampler):
    """Few of 729 plans cost as much as this one: hundreds of random tries missed some of them."""
    words = ["task.model={name: cresnet, depth: 8, width: 4}", f"search.sampler={sampler}"]
    words += ["space={method: bnn, plan: {per: layer, levels: [F, W, B]}}", "search.trials=30"]
    _, space = make_space(*words)
    costs = {spec.plan: space.costs(spec) for _, spec in every_point(space, 2000)}
    wanted = {name: costs["WWFFBB"][name] for name in ("bytes", "bops")}
    words += [f"limits.{name}={{min: {cost}, max: {cost}}}" for name, cost in wanted.items()]
    config, space = make_space(*words)
    ledger = Ledger(url, config, space)
    found = {e.spec.plan for e in drain(ledger)}
    assert found == {p for p, c in costs.items() if c.items() >= wanted.items()}
    assert len(found) < 30
    assert ledger.exhausted


@pytest.mark.parametrize(("share", "trials"), [(0.5, 4), (0.9, 20)])
def test_a_search_with_repeats_spends_its_budget_on_any_number_of_workers(
    make_space, url, share, trials
):
    """All new points run at once before any can be repeated; and points have six seeds at most."""
    words = [f"search.confirm={share}", f"search.trials={trials}"]
    config, space = make_space(*words)
    assert len(drain(Ledger(url, config, space))) == trials
    replayed = simulate(config, space, lambda entry: [accuracy_of(entry)], workers=8)
    assert len(replayed.ended) == trials
    assert replayed.session.complete


def test_a_range_of_budgets_is_listed_by_the_plans_it_makes(make_space):
    """Every plan of a fine grid of budgets, and no point twice."""
    words = "space={method: bnn, plan: {selector: [front, rear], budget: {float: [10, 90]}}}"
    _, space = make_space("task.model={name: cresnet, depth: 8, width: 4}", words)
    listed = every_point(space, 2000)
    assert listed is not None
    for name in ("front", "rear"):
        grid = set()
        for i in range(161):
            given = {"plan.selector": name, "plan.budget": 10 + i / 2}
            grid.add(space.walk(lambda name, domain, given=given: given[name]).plan)
        found = {spec.plan for drawn, spec in listed if drawn["plan.selector"] == name}
        assert found == grid
    assert all(10 <= drawn["plan.budget"] <= 90 for drawn, _ in listed)


def test_all_points_are_listed_where_draws_depend_on_others(make_space):
    words = "space={method: [fp, bnn, bnn++], plan: {per: layer}, bnn.scale: [none, channel], "
    _, space = make_space(words + "batch_size: [32, 64], model.depth: {int: [2, 4]}}")
    points = every_point(space, 2000)
    plans = sum(2**layers for layers in (1, 2, 3))
    assert len(points) == 2 * (3 + 2 * plans + plans)
    keys = [json.dumps(drawn, sort_keys=True) for drawn, _ in points]
    assert len(set(keys)) == len(keys)
    assert every_point(space, len(points) - 1) is None
    _, infinite = make_space()
    assert every_point(infinite, 10**9) is None


def test_full_precision_is_one_point_whatever_the_method(make_space, url):
    config, space = make_space(
        "space={method: [bnn, bc, bnn+], plan: {per: layer}}", "search.trials=200"
    )
    ledger = Ledger(url, config, space)
    entries = drain(ledger)
    assert sum(e.spec.plan == "FFFF" for e in entries) == 1
    assert len(entries) == 1 + 3 * 15


def test_a_narrow_limit_is_met_without_training_anything_else(make_space, url):
    config, space = make_space(
        "task.model={name: cresnet, depth: 20, width: 4}",
        "limits.flops_pct=12",
        "search.trials=5",
        "search.sampler=random",
    )
    ledger = Ledger(url, config, space)
    entries = drain(ledger)
    assert len(entries) == 5
    assert all(e.costs["flops_pct"] <= 12 for e in entries)


def test_what_was_told_is_read_back_from_disk(make_space, url):
    config, space = make_space()
    ledger = Ledger(url, config, space)
    entry = finish(ledger, ledger.ask())
    failed = ledger.ask()
    ledger.tell(failed.id, "failed", failure="oom", message="no room")
    running = ledger.ask()
    read = {e.id: e for e in read_entries(url, "tiny")}
    assert read[entry.id].values == [accuracy_of(entry), entry.costs["flops"]]
    assert read[entry.id].spec == entry.spec
    assert read[entry.id].history == entry.history
    assert (read[failed.id].state, read[failed.id].failure) == ("failed", "oom")
    assert read[running.id].state == "running"


def test_telling_twice_counts_once(make_space, url):
    config, space = make_space()
    ledger = Ledger(url, config, space)
    entry = finish(ledger, ledger.ask())
    ledger.tell(entry.id, "failed", failure="error", message="late")
    assert read_entries(url, "tiny")[0].state == "complete"


def test_an_interrupted_trial_is_handed_out_again_first_and_once(make_space, url):
    config, space = make_space()
    ledger = Ledger(url, config, space)
    finish(ledger, ledger.ask())
    open_ = [ledger.ask(), ledger.ask()]
    again = Ledger(url, config, space)
    assert [e.id for e in again.interrupted()] == [e.id for e in open_]
    assert [again.ask().id, again.ask().id] == [e.id for e in open_]
    assert again.ask().id not in {e.id for e in open_}


def test_an_objective_that_is_no_number_is_a_failure_not_a_broken_ledger(make_space, url):
    config, space = make_space("objectives={val_accuracy: max, val_loss: min}")
    ledger = Ledger(url, config, space)
    metrics = {"epoch": 1, "val_accuracy": 0.5, "val_loss": float("nan")}
    ledger.tell(ledger.ask().id, "complete", metrics, [metrics])
    (entry,) = read_entries(url, "tiny")
    assert (entry.state, entry.failure) == ("failed", "nan")


def test_reading_makes_no_file(tmp_path):
    assert read_entries(f"sqlite:///{tmp_path / 'none.db'}", "tiny") == []
    assert list(tmp_path.iterdir()) == []


def test_a_nan_in_a_curve_does_not_break_the_ledger(make_space, url):
    config, space = make_space()
    ledger = Ledger(url, config, space)
    entry = ledger.ask()
    metrics = {"epoch": 1, "val_accuracy": 0.5, "val_loss": float("nan")}
    ledger.tell(entry.id, "complete", {"epoch": 1, "val_accuracy": 0.5}, [metrics])
    assert read_entries(url, "tiny")[0].history == [{"epoch": 1, "val_accuracy": 0.5}]


def test_the_ledger_is_a_study_that_optuna_opens(make_space, url):
    config, space = make_space()
    drain(Ledger(url, config, space))
    study = optuna.load_study(study_name="tiny", storage=url)
    assert len(study.trials) == 6
    assert {t.state.name for t in study.trials} == {"COMPLETE"}
    assert "plan.layers.1" in study.trials[0].params


def test_a_ledger_that_cannot_be_opened_is_a_clear_error(make_space, tmp_path):
    config, space = make_space()
    with pytest.raises(UserError, match="the ledger cannot be opened"):
        Ledger(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder' / 'x.db'}", config, space)


def test_a_ledger_whose_tables_somebody_else_is_making_is_opened_a_little_later(
    make_space, url, monkeypatch
):
    """As when `status` looks at a search that is just being begun."""
    met = []

    class Busy(LedgerStorage):
        def __init__(self, *args, **kwargs):
            if len(met) < 2:
                met.append(args)
                raise RuntimeError("(sqlite3.OperationalError) table studies already exists")
            super().__init__(*args, **kwargs)

    monkeypatch.setattr("bitfront.search.ledger.storage.LedgerStorage", Busy)
    ledger = Ledger(url, *make_space())
    assert len(met) == 2
    assert ledger.ask() is not None


def test_two_searches_of_one_name_do_not_share_a_study(make_space, url):
    """As when two people, or one whose folder is new, use one database."""
    first = Ledger(url, *make_space(), owner="one")
    first.ask()
    with pytest.raises(UserError, match="another search called 'tiny'"):
        Ledger(url, *make_space(), owner="two")
    assert len(Ledger(url, *make_space(), owner="one").entries) == 1


def test_a_search_claims_what_is_not_its_own_file_alone(tmp_path, make_config, monkeypatch):
    monkeypatch.setenv("BITFRONT_LEDGER", "")  # `prepare` sets it for good
    own = prepare(make_config(), tmp_path)
    assert own.owner is None
    shared = prepare(make_config("name=shared"), tmp_path, f"sqlite:///{tmp_path}/other.db")
    assert shared.owner == shared.identity


def test_a_file_is_found_from_every_folder(tmp_path, make_config, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BITFRONT_LEDGER", "")
    folder = prepare(make_config(), tmp_path, "sqlite:///other.db")
    monkeypatch.delenv("BITFRONT_LEDGER")
    monkeypatch.chdir("/")
    assert folder.ledger_url == f"sqlite:///{tmp_path / 'other.db'}"


def test_a_new_network_is_noted_although_the_database_restarts(make_space, url, monkeypatch):
    ledger = Ledger(url, *make_space())
    usual, away = ledger.study.set_user_attr, [True]

    def restarting(key, value):
        if away and key == "networks":
            away.pop()
            raise StorageInternalError("away") from OperationalError("", {}, Exception("restart"))
        usual(key, value)

    monkeypatch.setattr(ledger.study, "set_user_attr", restarting)
    assert ledger.ask() is not None
    assert ledger.noted("networks")
    assert not away
