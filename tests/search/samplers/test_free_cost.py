"""The sampler of our own: what it asks first, what it never asks, what it makes of the answers."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from optuna.trial import TrialState

from bitfront.search.config.bounds import cost_bounds, violations
from bitfront.search.config.schema import SearchSpec
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.samplers.registry import make_sampler
from bitfront.search.samplers.surrogate.ask import FreeCostSampler
from bitfront.search.samplers.surrogate.model import QualityModel
from bitfront.search.samplers.surrogate.past import Past
from bitfront.trainables.cost import task_cost_table
from testbed.problems import synthetic
from testbed.simulator import simulate

pytestmark = pytest.mark.slow

FREE = "search.sampler=free-cost"
PLAN = "plan: {per: layer, levels: [F, B]}"
BNN = f"space={{method: bnn, {PLAN}}}"

SPACES = {
    "methods with parameters of their own": [],
    "three methods": ["space.method=[bnn, bnn+, bnn++]"],
    "with and without a plan": [f"space={{method: [fp, bnn], {PLAN}, optimizer.lr: [0.01, 0.1]}}"],
    "width and depth": [
        f"space={{method: bnn, {PLAN}, model.width: [8, 16, 24], model.depth: [3, 4, 5]}}"
    ],
    "a range of widths": [f"space={{method: bnn, {PLAN}, model.width: {{int: [4, 24], step: 4}}}}"],
    "three levels": ["space={method: bnn, plan: {per: layer, levels: [F, W, B]}}"],
    "a level less": ["space={method: [bnn, bc], plan: {per: layer, levels: [W, B]}}"],
    "per block": [
        "task.model={name: cresnet, depth: 20, width: 4}",
        "space={method: [bnn, bc], plan: {per: block, levels: [F, B]}}",
    ],
    "per stage": [
        "task.model={name: cresnet, depth: 20, width: 4}",
        "space={method: bnn, plan: {per: stage, levels: [F, W, B]}}",
    ],
    "a scale that costs": [f"space={{method: bnn, {PLAN}, bnn.scale: [none, channel]}}"],
    "a selector": [
        "space={method: bnn, plan: {selector: rear, budget: {float: [60, 100]}},"
        " optimizer.lr: {float: [0.001, 0.03], log: true}}"
    ],
    "a fixed plan": [
        "space={method: [bnn, bnn++], plan: FBBB,"
        " optimizer.lr: {float: [0.001, 0.03], log: true}, bnn++.mu_end: {float: [10, 100]}}"
    ],
    "three objectives": ["objectives={val_accuracy: max, flops: min, bytes: min}"],
    "two qualities": ["objectives={val_accuracy: max, val_loss: min, flops: min}"],
    "one objective": ["objectives={val_accuracy: max}"],
    "a loss": ["objectives={val_loss: min, flops: min}"],
    "a limit": ["limits.flops_pct=70"],
    "limits on both sides": ["limits={flops_pct: {min: 60, max: 80}, bytes: {min: 500}}"],
    "one objective and a limit": ["objectives={val_accuracy: max}", "limits.flops_pct=70"],
}


def quality_of(entry):
    """Later layers matter more, and a high learning rate helps a little."""
    lost = sum(0.01 * (i + 1) * (letter != "F") for i, letter in enumerate(entry.spec.plan))
    accuracy = 0.95 - lost + 0.5 * entry.spec.task.optimizer.lr
    return {"val_accuracy": accuracy, "val_loss": 1 - accuracy}


def finish(ledger, entry):
    metrics = {"epoch": 3, **quality_of(entry)}
    return ledger.tell(entry.id, "complete", metrics, [metrics])


def drain(ledger, parallel=1, until=None):
    """Run trials with `parallel` of them open at a time, until so many have ended."""
    done, open_ = [], []
    while until is None or len(done) < until:
        while len(open_) < parallel and (entry := ledger.ask()) is not None:
            open_.append(entry)
        if not open_:
            break
        done.append(finish(ledger, open_.pop(0)))
    return done


@pytest.fixture
def make_ledger(make_space):
    def make(*words, url="memory:"):
        config, space = make_space(FREE, *words)
        return Ledger(url, config, space)

    return make


def known_problem_ledger(problem, trials=20, seed=0):
    search = SearchSpec(sampler="free-cost", trials=trials, seed=seed)
    return Ledger("memory:", problem.config.model_copy(update={"search": search}), problem.space())


def all_plans(layers):
    return ["".join(letters) for letters in itertools.product("FB", repeat=layers)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", SPACES)
def test_every_point_is_complete_new_and_within_the_limits(make_ledger, kind):
    ledger = make_ledger("search.trials=9", *SPACES[kind])
    entries = drain(ledger, parallel=2)
    assert len(entries) == len({e.id for e in entries}) == 9
    assert not any(violations(ledger.config, e.costs) for e in entries)
    for trial in ledger.study.trials:
        asked = {}

        def draw(name, domain, given=trial.params, asked=asked):
            asked[name] = given[name]
            assert domain.contains(given[name])
            return given[name]

        ledger.space.walk(draw)
        assert asked == trial.params
    # Nothing was turned down on the way, so nothing was left to chance.
    assert len(ledger.in_memory.trials) == 9


@pytest.mark.parametrize("kind", SPACES)
def test_the_sampler_prices_a_plan_as_the_space_does(make_ledger, kind):
    ledger = make_ledger(*SPACES[kind])
    sampler: Any = make_sampler("free-cost", 0, ledger.proposals.problem)
    points = sampler._candidates.scattered(40)
    assert points
    for context, codes in points:
        point = context.point(codes)
        spec = ledger.space.walk(lambda name, domain, point=point: point[name])
        exact = [ledger.space.costs(spec)[name] for name in sampler._objectives.names]
        assert context.costs(codes[None])[0] == pytest.approx(exact)


def test_the_ends_come_first_on_a_relabelled_problem():
    problem = synthetic(6, False, 1)
    assert 0 < problem.flip.sum() < 6
    ledger = known_problem_ledger(problem)
    first, second = ledger.ask(), ledger.ask()
    costs = [problem.price(plan)["flops"] for plan in all_plans(6)]
    assert first.costs["flops"] == pytest.approx(max(costs))
    assert second.costs["flops"] == pytest.approx(min(costs))


@pytest.mark.parametrize(
    "words",
    [
        [BNN, "limits.flops_pct=100"],
        ["space={method: bnn, plan: {per: layer, levels: [B, F]}}", "limits.flops_pct=100"],
        ["space={method: bnn, plan: {per: layer, levels: [W, B, F]}}"],
        [BNN, "objectives={val_accuracy: max, flops: min, bytes: min}"],
        [f"space={{method: [fp, bnn], {PLAN}}}"],
        [f"space={{method: bnn, {PLAN}, model.width: {{int: [4, 32]}}, model.depth: [3, 4, 5]}}"],
    ],
    ids=["a limit on the end", "the other way round", "three", "two costs", "fp first", "models"],
)
def test_the_ends_of_the_cost_axis_come_first(make_ledger, words):
    ledger = make_ledger(*words)
    low, high = cost_bounds(ledger.space)["flops"]
    assert [ledger.ask().costs["flops"] for _ in range(2)] == [high, low]


def test_under_a_limit_the_ends_are_as_far_apart_as_it_allows(make_ledger):
    ledger = make_ledger(BNN, "limits.flops_pct={min: 60, max: 85}")
    first, second = (ledger.ask().costs["flops_pct"] for _ in range(2))
    step = max(
        abs(ledger.space.costs(spec)["flops_pct"] - 100)
        for spec in (single_layer(ledger.space, i) for i in range(4))
    )
    assert 85 - step < first <= 85
    assert 60 <= second < 60 + step


def single_layer(space, index):
    """The plan with one binary layer."""
    letters = iter("B" if i == index else "F" for i in range(4))
    return space.walk(lambda name, domain: next(letters))


@pytest.mark.parametrize("words", [[], [BNN], ["limits.flops_pct=75"]])
def test_eight_asks_at_once_are_eight_points(make_ledger, words):
    ledger = make_ledger("search.trials=16", *words)
    for _ in range(2):
        asked = [ledger.ask() for _ in range(8)]
        for entry in asked:
            finish(ledger, entry)
    assert len({e.id for e in ledger.entries.values()}) == 16


def test_points_in_training_are_left_alone():
    """With the model at work, eight asks spread over the cost axis instead of over one place."""
    ledger = known_problem_ledger(synthetic(10, False, 0), trials=40)
    drain(ledger, until=12)
    costs = sorted(ledger.ask().costs["flops"] for _ in range(8))
    assert len(set(costs)) == 8
    assert costs[-1] - costs[0] > 0.2


@pytest.mark.parametrize("words", [[], ["limits.flops_pct=75"]])
def test_an_ask_is_a_function_of_the_seed_and_the_ledger(make_ledger, tmp_path, words):
    words = ["search.trials=10", *words]
    ids = [e.id for e in drain(make_ledger(*words))]
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    for _ in range(5):
        drain(make_ledger(*words, url=url), until=2)
    assert list(make_ledger(*words, url=url).entries) == ids
    other = make_ledger(*words, "search.seed=1")
    assert [e.id for e in drain(other, until=5)] != ids[:5]


def test_an_interrupted_search_goes_on_as_if_nothing_had_been(make_ledger, tmp_path):
    """Three trials are open when the driver dies, and one has been given up."""
    words = ["search.trials=14"]
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    straight, broken = make_ledger(*words), make_ledger(*words, url=url)
    for ledger in (straight, broken):
        for i in range(9):
            entry = ledger.ask()
            if i == 4:
                ledger.tell(entry.id, "stopped", {}, [{"epoch": 1, **quality_of(entry)}])
            elif i < 6:
                finish(ledger, entry)
    resumed = make_ledger(*words, url=url)
    assert [resumed.ask().id for _ in range(3)] == list(straight.entries)[6:9]
    assert [resumed.ask().id for _ in range(3)] == [straight.ask().id for _ in range(3)]


# What it makes of trials that did not run to their end.


def told(ledger, *curves):
    """Trials with these accuracies after every epoch: of nine epochs complete, else given up."""
    for curve in curves:
        history = [{"epoch": i + 1, "val_accuracy": a} for i, a in enumerate(curve)]
        state = "complete" if len(curve) == 9 else "stopped"
        ledger.tell(ledger.ask().id, state, history[-1], history)
    return ledger.in_memory.get_trials(deepcopy=False)


def falling(end):
    """A curve whose beginning flatters: it ends 0.3 below its first epochs."""
    return [end + 0.3] * 4 + [end + 0.1] * 4 + [end]


def qualities(ledger, trials):
    """Of these trials, by their numbers."""
    fresh = dataclasses.replace(ledger.proposals.problem, memory={})
    sampler: Any = make_sampler("free-cost", 0, fresh)
    sampler._past.update(trials)
    return sampler._past.qualities(sampler._objectives.scalar.quality)


def test_a_flattering_beginning_does_not_pass_for_an_end(make_ledger):
    ledger = make_ledger(BNN, "search.trials=20")
    ends = (0.4, 0.45, 0.5, 0.55, 0.6)
    trials = told(ledger, *(falling(end) for end in ends), falling(0.5)[:3])
    quality, noise = qualities(ledger, trials)
    assert quality[:5] == pytest.approx(ends)
    assert noise[:5].tolist() == [0] * 5
    assert quality[5] == pytest.approx(0.5, abs=0.01)
    assert noise[5] > 0


def test_without_trials_that_went_on_a_stopped_one_says_nothing(make_ledger):
    ledger = make_ledger(BNN, "search.trials=20")
    trials = told(ledger, falling(0.4), falling(0.5), falling(0.6), falling(0.9)[:3])
    quality, _ = qualities(ledger, trials)
    assert np.isfinite(quality).tolist() == [True] * 3 + [False]
    finish(ledger, ledger.ask())


def test_a_stopped_trial_is_judged_by_finished_ones_only(make_ledger):
    """Those stopped at a later rung have no end that one stopped earlier could be compared to."""
    ledger = make_ledger(BNN, "search.trials=20")
    late = [falling(end)[:3] for end in (0.4, 0.5, 0.6)]
    finished = [falling(end) for end in (0.4, 0.45, 0.55, 0.6)]
    trials = told(ledger, *late, *finished, falling(0.5)[:1])
    quality, noise = qualities(ledger, trials)
    alone, alone_noise = qualities(ledger, trials[3:])
    assert quality[-1] == pytest.approx(alone[-1])
    assert noise[-1] == pytest.approx(alone_noise[-1])
    backwards, _ = qualities(ledger, trials[::-1])
    assert backwards == pytest.approx(quality)


def test_a_loss_is_carried_forward_as_a_loss(make_ledger):
    ledger = make_ledger(BNN, "search.trials=20", "objectives={val_loss: min, flops: min}")
    for end in (0.4, 0.45, 0.55, 0.6, None):
        curve = [1.0 + (end or 0.5), 0.9 + (end or 0.5), end or 0.5]
        history = [{"epoch": i + 1, "val_loss": a} for i, a in enumerate(curve)]
        history = history if end else history[:1]
        state = "complete" if end else "stopped"
        ledger.tell(ledger.ask().id, state, history[-1], history)
    quality, _ = qualities(ledger, ledger.in_memory.get_trials(deepcopy=False))
    assert quality == pytest.approx([-0.4, -0.45, -0.55, -0.6, -0.5], abs=0.01)


def test_failures_and_curves_with_holes_do_not_stop_it(make_ledger):
    ledger = make_ledger("search.trials=20", "objectives={val_accuracy: max, val_loss: min}")
    nan = float("nan")
    while (entry := ledger.ask()) is not None:
        good = quality_of(entry)
        holed = [{"epoch": 1, "val_accuracy": nan, "val_loss": nan}, {"epoch": 2, **good}]
        match entry.number % 5:
            case 0:
                ledger.tell(entry.id, "failed", failure="oom", message="no room")
            case 1:
                ledger.tell(entry.id, "complete", good | {"val_loss": nan}, holed)
            case 2:
                ledger.tell(entry.id, "stopped", holed[0], holed[:1])
            case 3:
                ledger.tell(entry.id, "stopped", {}, [])
            case _:
                ledger.tell(entry.id, "complete", good, holed)
    assert len(ledger.entries) == 20
    assert (ledger.count("failed"), ledger.count("stopped"), ledger.count("complete")) == (8, 8, 4)


def test_late_in_a_search_the_model_sees_what_matters(monkeypatch):
    monkeypatch.setattr("bitfront.search.samplers.surrogate.ask.MODEL_ROWS", 12)
    problem = synthetic(8, False, 0)
    ledger = known_problem_ledger(problem, trials=24)
    seen = []

    def model(rows, *rest):
        seen.append(len(rows))
        return QualityModel(rows, *rest)

    monkeypatch.setattr("bitfront.search.samplers.surrogate.ask.QualityModel", model)
    entries = drain(ledger)
    assert len({e.id for e in entries}) == 24
    assert max(seen) == 12


def test_of_many_running_trials_the_model_is_told_of_those_near_the_front(monkeypatch):
    """With a thousand of them an ask would take a second."""
    monkeypatch.setattr("bitfront.search.samplers.surrogate.ask.BELIEVED_ROWS", 5)
    problem = synthetic(8, False, 0)
    ledger = known_problem_ledger(problem, trials=30)
    told_of = []
    believe = QualityModel.believe

    def noted(model, rows):
        told_of.append(len(rows))
        believe(model, rows)

    monkeypatch.setattr(QualityModel, "believe", noted)
    entries = drain(ledger, parallel=12)
    assert len({e.id for e in entries}) == 30
    assert max(told_of) == 5


def test_what_is_forgotten_between_asks_changes_no_proposal(make_ledger, monkeypatch):
    words = ["search.trials=14", SPACES["a range of widths"][0]]
    whole = [e.id for e in drain(make_ledger(*words), parallel=2)]
    monkeypatch.setattr("bitfront.search.samplers.surrogate.atlas.CONTEXTS", 2)
    ledger = make_ledger(*words)
    assert [e.id for e in drain(ledger, parallel=2)] == whole
    assert len(ledger.proposals.problem.memory["atlas"]._contexts) <= 2


def test_the_past_does_not_depend_on_when_it_was_looked_at(make_ledger):
    ledger = make_ledger("search.trials=8")
    entries = [ledger.ask() for _ in range(6)]
    past = ledger.proposals.problem.memory["past"]
    for i in (4, 0, 3):
        finish(ledger, entries[i])
        past.update(ledger.in_memory.get_trials(deepcopy=False))
    assert past.numbers.tolist() == [0, 3, 4]
    fresh = Past(past._atlas, past._measured, past._columns)
    fresh.update(ledger.in_memory.get_trials(deepcopy=False))
    assert (fresh.numbers == past.numbers).all()
    assert (fresh.values == past.values).all()
    assert fresh.points == past.points
    assert fresh.running == past.running
    assert len(past.running) == 3


def test_it_beats_random_by_far():
    """What is left of the true hypervolume after 40 of 4096 plans, on two problems."""
    left = {}
    for sampler in ("free-cost", "random"):
        shares = []
        for seed in range(2):
            problem = synthetic(12, False, seed)
            search = SearchSpec(sampler=sampler, trials=40, seed=seed)
            config = problem.config.model_copy(update={"search": search})
            replayed = simulate(config, problem.space(), problem.answer(seed), workers=1)
            shares.append(problem.share([e.spec.plan for e in replayed.ended]))
        left[sampler] = 1 - np.mean(shares)
    assert left["free-cost"] < 0.25 * left["random"]


def test_a_trial_that_was_stopped_is_in_the_mirror_as_stopped(make_ledger):
    ledger = make_ledger(BNN)
    (trial,) = told(ledger, falling(0.5)[:3])
    assert trial.state == TrialState.PRUNED
    assert trial.values is None


def test_the_advice_of_a_selector_is_what_the_model_begins_with(make_space):
    """A layer that it makes binary last is believed to lose more than one that it makes binary
    first; where nothing is saved by either, no more than that is known."""
    words = [BNN, FREE, "search.advice=last"]
    config, space = make_space(*words)
    sampler = FreeCostSampler(Ledger("memory:", config, space).proposals.problem, 0)
    layers = [layer.name for layer in task_cost_table(space.task).plan_layers]
    points = [
        dict.fromkeys([f"plan.{name}" for name in layers], "F") | {f"plan.{layers[i]}": "B"}
        for i in (0, 1, len(layers) - 1)
    ]
    known = [sampler._atlas.at(point | {"method": "bnn"}) for point in points]
    sampler._encode(known)
    saved = [float(np.ptp(known[0].context.deltas[i, :, 0])) for i in (0, 1, len(layers) - 1)]
    per_cost = sampler._rows(known).believed[:, 0] / saved
    assert per_cost[0] < per_cost[1] < per_cost[2] < 0
