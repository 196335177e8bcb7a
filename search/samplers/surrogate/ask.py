"""The sampler `free-cost`: quality is modelled, the cost is exact before anything is trained.

A search begins with both ends of the cost axis and a few points far from each other. From then on,
or from the first trial that succeeds where others failed, each ask fits
a Gaussian process to the trials that have ended (`model.py`) and proposes the candidate x with the
greatest expected gain in hypervolume. With the front so far as steps (c_1, f_1), ..., (c_n, f_n) of
growing cost c and quality f, and the reference point (c_{n+1}, f_0), that gain is

    alpha(x) = sum_{i=0..n} w_i(c) sigma [z_i Phi(z_i) + phi(z_i)]
    w_i(c)   = max(0, c_{i+1} - max(c_i, c)),   z_i = (mu - f_i) / sigma,   c_0 = -infinity

times the square of p(x), the chance that training succeeds (`failures.py`), where trials have
failed for a reason of their point. Here c is the exact cost of x, mu its expected quality and sigma
the standard deviation of that (times OWN_SPREAD). The bracket is the expected improvement of Jones,
Schonlau and Welch (1998, doi:10.1023/A:1008306431147, eq. 15); the sum is the expected hypervolume
improvement of Emmerich, Giannakoglou and Naujoks (2006, doi:10.1109/TEVC.2005.859463) for one
uncertain objective. Trials that still run count with their expected quality (the "Kriging believer"
of Ginsbourger, Le Riche and Carraro, 2010, doi:10.1007/978-3-642-10701-6_6), so that parallel asks
differ. Several objectives of a kind are weighted at random (`objectives.py`).
The candidates are made in `candidates.py`; the best of them are improved by local search here."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import BaseSampler, RandomSampler

from bitfront.search.deciding.outlook import AHEAD, OUTLOOK, Outlook
from bitfront.search.deciding.outlook import LEAST as ENOUGH
from bitfront.search.model_health import EVERY
from bitfront.search.samplers.problem import Problem, distribution
from bitfront.search.samplers.surrogate import prospect
from bitfront.search.samplers.surrogate.atlas import Atlas, Block, Codes, Context, Encoder, Known
from bitfront.search.samplers.surrogate.beliefs import Beliefs, OtherSearch
from bitfront.search.samplers.surrogate.candidates import Candidates, fresh, separation
from bitfront.search.samplers.surrogate.failures import SuccessModel
from bitfront.search.samplers.surrogate.fronts import Staircase, near_front, staircase_index
from bitfront.search.samplers.surrogate.keeping import Chance, Together, keeping_models, kept
from bitfront.search.samplers.surrogate.model import Floats, QualityModel, Rows
from bitfront.search.samplers.surrogate.objectives import Objectives
from bitfront.search.samplers.surrogate.past import Past
from bitfront.search.samplers.surrogate.promising import Promises, promises, with_misses
from bitfront.search.samplers.surrogate.within import Within
from bitfront.spaces.space import FreePlan
from bitfront.trainables.parameters import Choice, Domain

# The power of the chance of success in the expected gain. What is cheap and may fail promises more
# than what has been tried; a failure teaches less than another trial.
CAUTION = 2.0
# Points after the two ends before the model is used: with a plan, and without one.
RANDOM_STARTS, STARTS = 2, 4
# So many random points are compared for one that is far from the trials so far.
SPREAD = 6
# So many trials must have finished before the model is used, where none has failed.
LEAST = 3
# The model is fitted to at most so many trials: those near the front, and some of the others.
MODEL_ROWS = 250
# It is told of at most so many running trials, those that are expected nearest to the front.
BELIEVED_ROWS = 1000
# Rounds of local search, and how many candidates are improved in each.
CLIMBS = 3
CLIMBERS = 6
# The factor of a candidate's standard deviation in its expected gain. The points of the front are
# uncertain too, and mostly in the same way (the trend, the contributions of layers): the difference
# between a candidate and the front is less uncertain than either. It is 1 where the model is no
# better than the mean of the trials.
OWN_SPREAD = 0.4


class FreeCostSampler(BaseSampler):
    """Optuna's view of one ask. A new one is made for each; the proposal is a function of the
    trials and the seed."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem = problem
        self._rng = np.random.default_rng(seed)
        self._independent = RandomSampler(seed=seed)
        self._objectives = Objectives(problem, self._rng)
        self._atlas: Atlas = problem.memory.setdefault(
            "atlas", Atlas(problem.space, self._objectives.names)
        )
        names = [o.name for o in problem.objectives]
        measured = [o.name for o in self._objectives.measured]
        self._past: Past = problem.memory.setdefault(
            "past",
            Past(
                self._atlas,
                measured,
                [names.index(name) for name in measured],
                list(problem.measured_limits),
            ),
        )
        self._other: OtherSearch = problem.memory.setdefault(
            "other", OtherSearch(self._atlas, problem.elsewhere, measured)
        )
        self._candidates = Candidates(
            problem.space,
            self._atlas,
            self._objectives,
            problem.memory.setdefault("within", Within(self._atlas, problem.limits)),
            self._rng,
            random.Random(seed),
        )
        self._point: dict[str, Any] = {}
        self._spread = OWN_SPREAD
        self._ended = 0
        self._looks_ahead = False
        self._promises: Promises | None = None

    def look_ahead(self, study: Any) -> None:
        """Leave in the memory of the problem how good the model is and what the next trials may
        add, without an ask."""
        trials = study.get_trials(deepcopy=False)
        self._past.update(trials)
        self._ended, self._looks_ahead = len(trials) - len(self._past.running), True
        if self._past.finished.sum() >= LEAST:
            self._ranked()

    def promises(self, study: Any) -> Promises | None:
        """What is expected of the best new point and of paused trials; None before the model is
        used."""
        self._past.update(study.get_trials(deepcopy=False))
        if self._past.finished.sum() >= LEAST:
            self._ranked()
        return self._promises

    # What Optuna calls.

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        """Choose the point, which decides what parameters there are, and return their
        distributions."""
        chosen = self._propose(study, trial.number)
        if chosen is None:
            return {}
        self._point, domains = chosen
        return {name: distribution(domains[name]) for name in self._point}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        """The point that was chosen."""
        return dict(self._point)

    def sample_independent(
        self, study: Any, trial: Any, param_name: str, param_distribution: Any
    ) -> Any:
        """A random value for a parameter that was not proposed."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    # The ask.

    def _propose(self, study: Any, number: int) -> tuple[dict[str, Any], dict[str, Domain]] | None:
        """The point for trial `number` and its domains; None where no candidate is new."""
        past = self._past
        past.update(study.get_trials(deepcopy=False), number)
        self._ended = number - len(past.running)
        self._looks_ahead = number % EVERY == 0
        begun = len(past.points) + len(past.running) + len(past.failed)
        if begun < 2:
            found = self._accepted(self._candidates.end(dear=begun == 0))
            if found is not None:
                return found
        least = 1 if past.failed else LEAST
        starts = 2 + (RANDOM_STARTS if isinstance(self._problem.space.plan, FreePlan) else STARTS)
        if past.finished.sum() < least or begun < starts:
            return self._accepted(self._started())
        return self._accepted(self._ranked())

    def _started(self) -> list[tuple[Context, Codes]]:
        """Points for a beginning without a model of the quality: random ones, those first that are
        most likely to succeed; without a plan those far from the trials so far."""
        found = list(self._candidates.scattered(64))
        told = [*self._past.points, *self._past.failed.values(), *self._past.running]
        if not found or not told:
            return found
        points = [Known(c, codes, c.costs(codes[None])[0]) for c, codes in found]
        self._encode([*told, *points])
        value = np.zeros(len(found))
        if not isinstance(self._problem.space.plan, FreePlan):
            # The best of a few: the best of many is in a corner of the space.
            value[:SPREAD] = separation(self._rows(points[:SPREAD]), self._rows(told))
        success = self._success_model()
        if success is not None:
            # Rounded: what is as likely stays in its random order.
            value = np.round(success.chance(self._rows(points)), 2) + 0.01 * value
        return [found[i] for i in np.argsort(-value, kind="stable")]

    def _success_model(self) -> SuccessModel | None:
        """The chance of success; None while no trial has failed for a reason of its point."""
        if not self._past.failed:
            return None
        points, succeeded = self._past.outcomes()
        return SuccessModel(self._rows(points), succeeded)

    def _chance(self, keeps: Sequence[Chance]) -> Chance | None:
        """The chance that training succeeds and all limits are kept; None where nothing speaks
        against either."""
        success = self._success_model()
        parts = [*([] if success is None else [success]), *keeps]
        return Together(parts) if parts else None

    def _accepted(
        self, candidates: Iterable[tuple[Context, Codes]]
    ) -> tuple[dict[str, Any], dict[str, Domain]] | None:
        """The first candidate that is new and within the limits, with its domains."""
        for context, codes in candidates:
            point = context.point(codes)
            if self._problem.is_new(point):
                domain = Choice(context.levels) if context.groups else None
                domains = context.domains | {g: domain for g in context.groups if domain}
                return point, domains
        return None

    # The model.

    def _ranked(self) -> list[tuple[Context, Codes]]:
        """New points, the greatest expected gain in hypervolume first."""
        past, weights = self._past, self._objectives.scalar
        quality, noise = past.qualities(weights.quality)
        useful = np.flatnonzero(np.isfinite(quality))
        told = quality[useful], past.costs[useful] @ weights.cost
        stairs = Staircase.of(*told, *self._objectives.worst())
        useful = useful[near_front(stairs, *told, MODEL_ROWS, self._rng)]
        points = [past.points[i] for i in useful] + past.running
        self._encode([*points, *past.failed.values()])
        rows, cost = self._rows(points), self._scalar_costs(points)
        trained = slice(0, len(useful))
        observed, extra = with_misses(
            past, weights.quality, useful, rows, quality[useful], noise[useful], self._rng
        )
        model = QualityModel(rows.take(trained), observed, extra, self._rng)
        health = self._problem.memory["health"] = model.health()
        self._spread = 1.0 if health.blind else OWN_SPREAD
        expected = model.expected(rows)
        limits = self._problem.measured_limits
        keeps = keeping_models(limits, rows.take(trained), past.limited[useful], self._rng)
        able = past.finished[useful] & kept(limits, past.limited[useful])  # no stopped trial
        running = np.ones(len(past.running), bool)
        if keeps and past.running:
            running = Together(keeps).chance(rows.take(slice(len(useful), None))) >= 0.5
        may = np.concatenate([able, running])
        stairs = Staircase.of(expected[may], cost[may], *self._objectives.worst())
        also = may | np.concatenate([past.looked[useful], running])
        beyond = Staircase.of(expected[also], cost[also], *self._objectives.worst())
        if past.running:
            model.believe(rows.take(self._believed(stairs, expected, cost, len(useful))))
        front = [points[i] for i in staircase_index(expected, cost)]
        if limits and may.any():
            first = np.flatnonzero(may)
            front += [points[i] for i in first[staircase_index(expected[may], cost[may])]]
        tried = [*past.points, *past.failed.values(), *past.running]
        taken = {(k.context.key, k.codes.tobytes()) for k in tried}
        success = self._chance(keeps)
        hoped = partial(self._expected, model, success)
        blocks = self._candidates.pool(hoped, front)
        best: list[tuple[float, Context, Codes]] = []
        looked: list[tuple[float, Context, Codes]] = []
        for climb in range(CLIMBS + 1):
            looked += self._valued(model, success, beyond, fresh(blocks, taken))
            best = sorted(looked, key=lambda b: -b[0])[: 4 * CLIMBERS]
            if climb < CLIMBS:
                tops = [(context, codes) for _, context, codes in best[:CLIMBERS]]
                blocks = self._candidates.neighbours(tops)
        if self._looks_ahead:
            self._problem.memory[OUTLOOK] = self._outlook(model, success, looked)
        if past.paused:
            fitted = past, useful, rows, cost, model, stairs, self._spread
            self._promises = promises(*fitted, success, CAUTION, best[0][0] if best else 0.0)
        return [(context, codes) for _, context, codes in best]

    def _outlook(
        self,
        model: QualityModel,
        success: Chance | None,
        looked: list[tuple[float, Context, Codes]],
    ) -> Outlook | None:
        """What the next trials may add to the front, those that run among them; None before enough
        have ended, and where objectives are weighted at random."""
        past, weights = self._past, self._objectives.scalar
        if self._ended < ENOUGH or not self._objectives.single:
            return None
        best = sorted(looked, key=lambda b: -b[0])[: prospect.CANDIDATES]
        running = past.running[:AHEAD]
        points = [*running, *(Known(c, codes, c.costs(codes[None])[0]) for _, c, codes in best)]
        done = past.finished & kept(self._problem.measured_limits, past.limited)
        quality, cost = past.values[done] @ weights.quality, past.costs[done] @ weights.cost
        measured = Staircase.of(quality, cost, *self._objectives.worst())
        rng = np.random.default_rng(self._ended)
        rows = self._rows(points)
        ahead = prospect.Ahead(
            self._scalar_costs(points),
            model.expected(rows),
            model.draws(rows, prospect.DRAWS, rng),
            np.ones(len(points)) if success is None else success.chance(rows),
            len(running),
        )
        found = prospect.outlook(measured, ahead, self._ended, rng)
        new = points[len(running) :], ahead.mean[len(running) :]
        return None if found is None else prospect.with_tries(found, *new, self._objectives)

    def _believed(
        self, stairs: Staircase, expected: Floats, cost: Floats, first: int
    ) -> NDArray[np.intp]:
        """The running trials that the model is told of, whose rows begin at `first`: all, or where
        they are many those nearest to the expected front, among which the next one will be."""
        running = np.arange(first, len(cost))
        if len(running) > BELIEVED_ROWS:
            gap = stairs.at(cost[running]) - expected[running]
            running = np.sort(running[np.argsort(gap, kind="stable")[:BELIEVED_ROWS]])
        return running

    def _encode(self, points: Sequence[Known]) -> None:
        """Settle what numbers a row has. Without a plan the logarithm of the cost is one, where the
        points have different costs."""
        priced = None
        if not isinstance(self._problem.space.plan, FreePlan) and self._objectives.priced:
            cost = self._scalar_costs(points)
            if cost.min() > 0 and cost.max() > 1.001 * cost.min():
                priced = float(np.log(cost.min())), float(np.log(cost.max()))
        other, weights = self._other, self._objectives.scalar
        contexts = [k.context for k in (*points, *other.points)]
        self._encoder = Encoder.of(contexts, self._atlas.levels, priced)
        self._beliefs = Beliefs(self._problem.space, contexts, other)
        made_of = f"{self._encoder.made_of} {weights.quality} {weights.cost}"
        other.learn(made_of, lambda: self._rows(other.points), weights.quality)

    def _scalar_costs(self, points: Sequence[Known]) -> Floats:
        costs = np.array([k.costs for k in points]).reshape(len(points), -1)
        return costs @ self._objectives.scalar.cost

    def _rows(self, points: Sequence[Known]) -> Rows:
        """The points as rows of the model, in their order."""
        where: dict[Any, list[int]] = {}
        for i, known in enumerate(points):
            where.setdefault(known.context.kind, []).append(i)
        parts, order = [], []
        for indices in where.values():
            codes = np.stack([points[i].codes for i in indices])
            cost = self._scalar_costs([points[i] for i in indices])
            parts.append(self._encoded([points[i].context for i in indices], codes, cost))
            order += indices
        return Rows.stack(parts).take(np.argsort(order))

    def _rows_in(self, context: Context, codes: Codes) -> Rows:
        """Plans of one context as rows of the model."""
        return self._encoded([context], codes, context.costs(codes) @ self._objectives.scalar.cost)

    def _encoded(self, contexts: Sequence[Context], codes: Codes, cost: Floats) -> Rows:
        """Plans of these scalar costs as rows; their contexts, one each or one for all, are of a
        kind."""
        groups = len(contexts[0].groups)
        dear = np.zeros(len(codes))
        if groups:
            price = contexts[0].deltas @ self._objectives.scalar.cost
            low = price.min(1, keepdims=True)
            unit = (price - low) / np.maximum(price.max(1, keepdims=True) - low, 1e-12)
            dear = unit[np.arange(groups)[None], codes].mean(1)
        rows = self._encoder.rows(contexts, codes, np.stack([cost, dear], axis=1), cost)
        return replace(rows, believed=self._beliefs.of(contexts, codes, rows))

    def _expected(
        self, model: QualityModel, success: Chance | None, context: Context, codes: Codes
    ) -> Floats:
        """The qualities that the model expects of plans in one context; a trial that fails, or
        misses a limit, has that of the reference point."""
        rows = self._rows_in(context, codes)
        expected = model.expected(rows)
        if success is not None:
            worst, _ = self._objectives.worst()
            expected = worst + success.chance(rows) * (expected - worst)
        return expected

    def _valued(
        self,
        model: QualityModel,
        success: Chance | None,
        stairs: Staircase,
        blocks: list[Block],
    ) -> list[tuple[float, Context, Codes]]:
        """The candidates with the greatest expected gains, with those gains."""
        if not blocks:
            return []
        rows = Rows.stack([self._rows_in(*block) for block in blocks])
        mean, spread = model.predict(rows)
        weights = self._objectives.scalar.cost
        cost = np.concatenate([c.costs(codes) @ weights for c, codes in blocks])
        gain = stairs.expected_improvement(cost, mean, self._spread * spread)
        if success is not None:
            gain *= success.chance(rows) ** CAUTION
        where = np.repeat(np.arange(len(blocks)), [len(codes) for _, codes in blocks])
        first = np.concatenate([[0], np.cumsum([len(codes) for _, codes in blocks])])
        found = []
        for i in np.argsort(-gain, kind="stable")[: 4 * CLIMBERS]:
            context, codes = blocks[where[i]]
            found.append((float(gain[i]), context, codes[i - first[where[i]]]))
        return found
