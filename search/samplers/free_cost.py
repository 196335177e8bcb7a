"""The sampler of our own: quality is modelled, the cost is exact and free.

It begins with both ends of the cost axis and a few random points, then fits a `QualityModel` to
what has been trained and proposes the point with the greatest expected gain in hypervolume at its
exact cost. Candidates are the exact front of the model's additive part (dynamic programming),
neighbours and crossings of the front so far, and random points; the best of them are improved by
local search. Points that break a limit are never candidates; points being trained count with the
quality expected of them, so that parallel asks do not collide."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import TrialState

from bitfront.search.samplers.atlas import (
    Atlas,
    Block,
    Codes,
    Context,
    Encoder,
    Known,
    mapped,
    nearby,
)
from bitfront.search.samplers.registry import Problem, distribution
from bitfront.search.samplers.surrogate import (
    Floats,
    QualityModel,
    Rows,
    Staircase,
    additive_front,
    staircase_index,
)
from bitfront.spaces.space import FreePlan, ends
from bitfront.trainables.methods import METHODS
from bitfront.trainables.parameters import Choice, Domain

# Random points after the ends, before the model has a say.
RANDOM_STARTS = 2
# The model sees at most so many trials: those that matter for the front, and some of the others.
MODEL_ROWS = 250
CANDIDATES = 1000
CLIMBS = 3
CLIMBERS = 6
DOUBLES = 16
CORNERS = 64
# How much of a candidate's spread counts as hope. The points of the front are uncertain too, mostly
# in the same way (the trend, the parts of layers): the gain over them is surer than either.
OWN_SPREAD = 0.4


@dataclass(frozen=True)
class Scalar:
    """Objectives as one quality to raise and one cost to lower. More than one of a kind are
    weighted anew at every ask, so that in time every trade between them is looked for."""

    quality: Floats
    """weights of the objectives that are measured"""
    cost: Floats
    """weights of the atlas' costs, in units of the reference point"""


class FreeCostSampler(BaseSampler):
    """One ask: made anew for each, a function of the trials and the seed alone."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem = problem
        self._rng = np.random.default_rng(seed)
        self._random = random.Random(seed)
        self._independent = RandomSampler(seed=seed)
        self._measured = [o for o in problem.objectives if o.name not in problem.cost_names]
        self._priced = [o for o in problem.objectives if o.name in problem.cost_names]
        limited = [name for name in problem.limits if name not in {o.name for o in self._priced}]
        names = [o.name for o in self._priced] + limited
        self._names = names
        self._atlas: Atlas = problem.memory.setdefault("atlas", Atlas(problem.space, names))
        self._point: dict[str, Any] = {}
        self._scalar = self._weights()

    # What Optuna calls.

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        """The point is chosen here: which parameters it has depends on the point."""
        chosen = self._propose(study, trial.number)
        if chosen is None:
            return {}
        self._point, domains = chosen
        return {name: distribution(domains[name]) for name in self._point}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        return dict(self._point)

    def sample_independent(
        self, study: Any, trial: Any, param_name: str, param_distribution: Any
    ) -> Any:
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    # The ask.

    def _propose(self, study: Any, number: int) -> tuple[dict[str, Any], dict[str, Domain]] | None:
        trials = [t for t in study.get_trials(deepcopy=False) if t.number != number]
        done = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
        running = [t for t in trials if t.state == TrialState.RUNNING]
        finished = [t for t in done if t.state == TrialState.COMPLETE]
        begun = len(done) + len(running)
        if begun < 2 and isinstance(self._problem.space.plan, FreePlan):
            found = self._accepted(self._end(dear=begun == 0))
            if found is not None:
                return found
        if len(finished) < 3 or begun < 2 + RANDOM_STARTS:
            return self._accepted(self._scattered(64))
        return self._accepted(self._ranked(done, running))

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

    def _end(self, dear: bool) -> list[tuple[Context, Codes]]:
        """One end of the cost axis: the dearer or cheaper level in every layer of the dearest or
        cheapest model, all other settings in the middle. Repaired where a limit forbids it."""
        space = self._problem.space
        models = {k: ends(d) for k, d in space.overrides.items() if k.startswith("model.")}
        planned = [str(m) for m in space.method.values if METHODS.get(str(m)).levels != "F"]
        if not planned:
            return []  # full precision is all there is
        found: list[tuple[float, Context, Codes]] = []
        for corner in itertools.islice(itertools.product(*models.values()), CORNERS):
            drawn = dict(zip(models, corner, strict=True)) | {"method": planned[0]}
            context = self._atlas.context(drawn)
            price = context.deltas @ self._scalar.cost
            codes = (price.argmax(1) if dear else price.argmin(1))[None]
            for plan in self._repaired(context, codes):
                cost = float(context.costs(plan[None])[0] @ self._scalar.cost)
                found.append((-cost if dear else cost, context, plan))
        return [(context, plan) for _, context, plan in sorted(found, key=lambda f: f[0])]

    def _scattered(self, count: int) -> list[tuple[Context, Codes]]:
        """Random points; the share of each level is drawn first, so that cheap and dear plans are
        as likely as middling ones."""
        found = []
        for _ in range(count):
            context = self._atlas.context({}, self._random)
            found += [(context, c) for c in self._repaired(context, self._random_plans(context, 1))]
        return found

    def _random_plans(self, context: Context, count: int) -> Codes:
        levels = max(1, len(context.levels))
        shares = self._rng.dirichlet(np.ones(levels), count).cumsum(1)
        draws = self._rng.random((count, len(context.groups)))
        return np.minimum((draws[:, :, None] > shares[:, None, :]).sum(2), levels - 1)

    # Limits and scalar objectives.

    def _weights(self) -> Scalar:
        references = dict(
            zip([o.name for o in self._problem.objectives], self._problem.reference, strict=True)
        )

        def drawn(count: int) -> Floats:
            return self._rng.dirichlet(np.ones(count)) if count > 1 else np.ones(count)

        cost = np.zeros(len(self._names))
        share = drawn(len(self._priced))
        for i, objective in enumerate(self._priced):
            sign = -1.0 if objective.maximize else 1.0
            cost[i] = sign * share[i] / (abs(references[objective.name]) or 1.0)
        signs = np.array([1.0 if o.maximize else -1.0 for o in self._measured])
        return Scalar(signs * drawn(len(self._measured)), cost)

    def _worst(self) -> tuple[float, float]:
        """Quality and cost of the reference point."""
        references = dict(
            zip([o.name for o in self._problem.objectives], self._problem.reference, strict=True)
        )
        quality = float(self._scalar.quality @ [references[o.name] for o in self._measured])
        at_reference = np.zeros(len(self._names))
        for i, objective in enumerate(self._priced):
            at_reference[i] = references[objective.name]
        return quality, float(self._scalar.cost @ at_reference) if self._priced else 1.0

    def _feasible(self, costs: Floats) -> NDArray[np.bool_]:
        fine = np.ones(len(costs), dtype=bool)
        for name, limit in self._problem.limits.items():
            column = costs[:, self._names.index(name)]
            if limit.max is not None:
                fine &= column <= limit.max
            if limit.min is not None:
                fine &= column >= limit.min
        return fine

    def _repaired(self, context: Context, codes: Codes) -> Codes:
        """Plans within the limits: where one is broken, groups in random order are moved to the
        level that is best for it until it holds. Plans beyond repair are left out."""
        if not self._problem.limits or not len(codes):
            return codes
        codes = codes.copy()
        for name, limit in self._problem.limits.items():
            column = self._names.index(name)
            price = context.deltas[:, :, column] if context.groups else np.zeros((0, 1))
            for i in range(len(codes)):
                total = float(context.costs(codes[i : i + 1])[0, column])
                for g in self._rng.permutation(len(context.groups)):
                    over = limit.max is not None and total > limit.max
                    under = limit.min is not None and total < limit.min
                    if not over and not under:
                        break
                    target = int(price[g].argmin() if over else price[g].argmax())
                    moved = total + float(price[g, target] - price[g, codes[i, g]])
                    if over and limit.min is not None and moved < limit.min:
                        continue
                    if under and limit.max is not None and moved > limit.max:
                        continue
                    codes[i, g], total = target, moved
        return codes[self._feasible(context.costs(codes))]

    # The model.

    def _ranked(self, done: list[Any], running: list[Any]) -> list[tuple[Context, Codes]]:
        """New points, the greatest expected gain in hypervolume first."""
        quality, noise = self._qualities(done)
        useful = np.flatnonzero(np.isfinite(quality))
        seen = [self._atlas.known(done[i]) for i in useful]
        kept = self._view(quality[useful], self._scalar_costs(seen))
        seen, useful = [seen[i] for i in kept], useful[kept]
        pending = [self._atlas.known(trial) for trial in running]
        self._encoder = Encoder.of([k.context for k in seen + pending], self._atlas.levels)
        model = QualityModel(self._rows(seen), quality[useful], noise[useful], self._rng)
        if pending:
            model.believe(self._rows(pending))
        points = seen + pending
        expected, _ = model.predict(self._rows(points))
        cost = self._scalar_costs(points)
        # A stopped plan cannot stand on the front, whatever is thought of it.
        may = np.array(
            [done[i].state == TrialState.COMPLETE for i in useful] + [True] * len(pending)
        )
        stairs = Staircase.of(expected[may], cost[may], *self._worst())
        front = [points[i] for i in staircase_index(expected, cost)]
        taken = {(k.context.key, k.codes.tobytes()) for k in points}
        blocks = self._pool(model, front)
        best: list[tuple[float, Context, Codes]] = []
        for climb in range(CLIMBS + 1):
            best += self._valued(model, stairs, _fresh(blocks, taken))
            best = sorted(best, key=lambda b: -b[0])[: 4 * CLIMBERS]
            if climb < CLIMBS:
                blocks = self._neighbours([(c, codes) for _, c, codes in best[:CLIMBERS]])
        return [(context, codes) for _, context, codes in best]

    def _view(self, quality: Floats, cost: Floats) -> NDArray[np.intp]:
        """The trials the model is fitted to: all, or those nearest to the front and a random
        choice of the rest, so that an ask costs the same late in a search as early."""
        if len(quality) <= MODEL_ROWS:
            return np.arange(len(quality))
        stairs = Staircase.of(quality, cost, *self._worst())
        order = np.argsort(stairs.at(cost) - quality, kind="stable")
        near = 3 * MODEL_ROWS // 4
        rest = self._rng.choice(order[near:], MODEL_ROWS - near, replace=False)
        return np.sort(np.concatenate([order[:near], rest]))

    def _qualities(self, done: list[Any]) -> tuple[Floats, Floats]:
        """Quality and extra noise of every trial. A stopped trial is worth what trials that went
        on from its value came to, with the uncertainty of that guess; nan where nothing is known
        to guess from."""
        quality = np.full(len(done), np.nan)
        noise = np.zeros(len(done))
        names = [o.name for o in self._problem.objectives]
        columns = [names.index(o.name) for o in self._measured]
        for i, trial in enumerate(done):
            if trial.state == TrialState.COMPLETE:
                values = np.array([trial.values[c] for c in columns])
                quality[i] = float(self._scalar.quality @ values)
        stopped = [i for i, t in enumerate(done) if t.state == TrialState.PRUNED]
        if stopped:
            curves = [self._curve(t) for t in done]
            whole = [c for c, q in zip(curves, quality, strict=True) if len(c) and np.isfinite(q)]
            lines = {n: Extrapolation.of(whole, n) for n in {len(curves[i]) for i in stopped}}
            for i in stopped:
                line = lines[len(curves[i])]
                if line is not None:
                    quality[i], noise[i] = line.end(float(curves[i][-1])), line.variance
        return quality, noise

    def _curve(self, trial: Any) -> Floats:
        """Quality after every epoch."""
        history = trial.user_attrs.get("result", {}).get("history", {})
        columns = [history.get(o.name) for o in self._measured]
        if not columns or any(c is None or None in c for c in columns):
            return np.zeros(0)
        return np.asarray(self._scalar.quality @ np.array(columns, dtype=float))

    def _scalar_costs(self, points: Sequence[Known]) -> Floats:
        return np.array([k.costs for k in points]).reshape(len(points), -1) @ self._scalar.cost

    def _rows(self, points: Sequence[Known]) -> Rows:
        """Rows in the order of the points, made a context at a time."""
        where: dict[Any, list[int]] = {}
        for i, known in enumerate(points):
            where.setdefault(known.context.key, []).append(i)
        parts, order = [], []
        for indices in where.values():
            codes = np.stack([points[i].codes for i in indices])
            parts.append(self._rows_in(points[indices[0]].context, codes))
            order += indices
        return Rows.stack(parts).take(np.argsort(order))

    def _rows_in(self, context: Context, codes: Codes) -> Rows:
        cost = context.costs(codes) @ self._scalar.cost
        price = context.deltas @ self._scalar.cost
        dear = np.zeros(len(codes))
        if context.groups:
            low = price.min(1, keepdims=True)
            unit = (price - low) / np.maximum(price.max(1, keepdims=True) - low, 1e-12)
            dear = unit[np.arange(len(context.groups))[None], codes].mean(1)
        trend = np.stack([cost, dear], axis=1)
        return self._encoder.rows(context, codes, trend)

    def _valued(
        self, model: QualityModel, stairs: Staircase, blocks: list[Block]
    ) -> list[tuple[float, Context, Codes]]:
        """The best of the candidates with their expected gains."""
        if not blocks:
            return []
        mean, spread = model.predict(Rows.stack([self._rows_in(*block) for block in blocks]))
        cost = np.concatenate([c.costs(codes) @ self._scalar.cost for c, codes in blocks])
        gain = stairs.expected_improvement(cost, mean, OWN_SPREAD * spread)
        where = np.repeat(np.arange(len(blocks)), [len(codes) for _, codes in blocks])
        first = np.concatenate([[0], np.cumsum([len(codes) for _, codes in blocks])])
        found = []
        for i in np.argsort(-gain, kind="stable")[: 4 * CLIMBERS]:
            context, codes = blocks[where[i]]
            found.append((float(gain[i]), context, codes[i - first[where[i]]]))
        return found

    # Candidates.

    def _pool(self, model: QualityModel, front: list[Known]) -> list[Block]:
        contexts = self._contexts(front)
        share = max(40, CANDIDATES // len(contexts))
        blocks = []
        for context in contexts:
            made = [self._random_plans(context, max(4, share // 8))]
            if context.groups:
                plans = np.stack([mapped(k.context, k.codes, context, self._rng) for k in front])
                made.append(plans)
                made.append(self._additive(model, context, plans))
                made.append(self._changed(plans, len(context.levels), share // 2))
                made.append(self._crossed(plans, share // 8))
            codes = np.unique(np.concatenate(made), axis=0)
            if len(codes) > share:
                codes = codes[self._rng.choice(len(codes), share, replace=False)]
            blocks.append((context, self._repaired(context, codes)))
        return blocks

    def _contexts(self, front: list[Known]) -> list[Context]:
        """Settings to look for plans in: those of the front, changes of them, and random ones."""
        on_front = list({known.context.key: known.context for known in front}.values())
        if not on_front[0].domains and len(on_front) == 1:
            return on_front
        # Without a plan to vary, all the variety is here.
        wanted = 4 if isinstance(self._problem.space.plan, FreePlan) else 24
        if len(on_front) > wanted:
            chosen = self._rng.choice(len(on_front), wanted, replace=False)
            on_front = [on_front[i] for i in sorted(chosen)]
        changed = [self._resettled(self._random.choice(on_front)) for _ in range(wanted)]
        drawn = [self._atlas.context({}, self._random) for _ in range(wanted // 2)]
        return list({c.key: c for c in on_front + changed + drawn}.values())

    def _resettled(self, context: Context) -> Context:
        """One or two settings moved: numbers a little, others to another value."""
        params = dict(context.params)
        for name in self._random.sample(
            list(params), min(len(params), self._random.choice((1, 2)))
        ):
            params[name] = nearby(context.domains[name], params[name], self._random)
        return self._atlas.context(params, self._random)

    def _additive(self, model: QualityModel, context: Context, plans: Codes) -> Codes:
        """The exact fronts of the model's additive part, taken around a few plans of the front."""
        groups, levels = len(context.groups), len(context.levels)
        price = context.deltas @ self._scalar.cost
        found = []
        for index in self._rng.choice(len(plans), min(2, len(plans)), replace=False):
            around = np.repeat(plans[index][None], groups * levels, 0)
            around[np.arange(groups * levels), np.repeat(np.arange(groups), levels)] = np.tile(
                np.arange(levels), groups
            )
            mean, _ = model.predict(self._rows_in(context, around))
            gain = mean.reshape(groups, levels)
            found.append(additive_front(gain - gain[:, :1], price))
        return np.concatenate(found)

    def _changed(self, plans: Codes, levels: int, count: int) -> Codes:
        """Plans with one to three layers at another level."""
        chosen = plans[self._rng.integers(len(plans), size=count)]
        for changes in range(3):
            rows = np.arange(changes * count // 3, count)
            group = self._rng.integers(plans.shape[1], size=len(rows))
            step = self._rng.integers(1, max(2, levels), size=len(rows))
            chosen[rows, group] = (chosen[rows, group] + step) % levels
        return chosen

    def _crossed(self, plans: Codes, count: int) -> Codes:
        a, b = (plans[self._rng.integers(len(plans), size=count)] for _ in range(2))
        return np.where(self._rng.random(a.shape) < 0.5, a, b)

    def _neighbours(self, points: list[tuple[Context, Codes]]) -> list[Block]:
        """Every single change of a plan, some double ones, and the plan under other settings."""
        blocks: list[Block] = []
        for context, codes in points:
            groups, levels = len(context.groups), len(context.levels)
            if groups:
                singles = np.repeat(codes[None], groups * (levels - 1), 0)
                group = np.repeat(np.arange(groups), levels - 1)
                step = np.tile(np.arange(1, levels), groups)
                rows = np.arange(len(singles))
                singles[rows, group] = (singles[rows, group] + step) % levels
                doubles = self._changed(singles, levels, DOUBLES)
                made = np.concatenate([singles, doubles])
                blocks.append((context, self._repaired(context, made)))
            for _ in range(3 if context.domains else 0):
                other = self._resettled(context)
                moved = mapped(context, codes, other, self._rng)[None]
                blocks.append((other, self._repaired(other, moved)))
        return blocks


@dataclass(frozen=True)
class Extrapolation:
    """What trials came to that had a value after so many epochs: a line through those that went
    on, and how far they were from it."""

    then: float
    ends: float
    slope: float
    variance: float

    @staticmethod
    def of(curves: Sequence[Floats], epochs: int) -> Extrapolation | None:
        """From whole curves; None where too few tell of that epoch."""
        pairs = [(c[epochs - 1], c[-1]) for c in curves if len(c) > epochs] if epochs else []
        if len(pairs) < 4:
            return None
        then, ends = np.array(pairs).T
        spread = float(then.var())
        slope = float(np.cov(then, ends, bias=True)[0, 1]) / spread if spread > 1e-12 else 0.0
        # A line of few points is drawn towards the plainest guess, that differences stay.
        slope = (len(pairs) * slope + 4.0) / (len(pairs) + 4)
        residual = ends - ends.mean() - slope * (then - then.mean())
        return Extrapolation(
            float(then.mean()), float(ends.mean()), slope, float(residual.var()) + 1e-8
        )

    def end(self, value: float) -> float:
        return self.ends + self.slope * (value - self.then)


def _fresh(blocks: Iterable[Block], taken: set[Any]) -> list[Block]:
    """Candidates not seen before, which are then added to what has been."""
    found = []
    for context, codes in blocks:
        new = []
        for i, row in enumerate(codes):
            key = (context.key, row.tobytes())
            if key not in taken:
                taken.add(key)
                new.append(i)
        if new:
            found.append((context, codes[new]))
    return found
