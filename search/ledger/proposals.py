"""Proposals for the next trial: a new point of the space, or another seed of a point that is
finished. Nothing is written to disk here."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import TrialState as OptunaState

from bitfront.search.config.bounds import violations
from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.limits import keeping
from bitfront.search.ledger.entry import Entry, point_of, without_plan
from bitfront.search.ledger.states import TrialState
from bitfront.search.samplers.problem import Elsewhere, Problem, distribution
from bitfront.search.samplers.registry import SAMPLERS, make_sampler
from bitfront.search.session.repeats import merged, next_repeat
from bitfront.search.session.rows import Rows
from bitfront.spaces.listing import every_point
from bitfront.spaces.space import FreePlan, Space, random_value, recorded
from bitfront.trainables.parameters import Domain
from bitfront.trainables.task import TrialSpec

if TYPE_CHECKING:
    from bitfront.search.samplers.surrogate.promising import Promises
    from bitfront.search.samplers.surrogate.within import Within

SAMPLER_TRIES = 10
RANDOM_TRIES = 300
WITHIN_TRIES = 100
# A space of at most so many points is listed when the sampler proposes nothing new.
LISTED_POINTS = 2000

Proposal = tuple[Entry, optuna.Trial]
"""A trial that nobody has started, and the same in the study that samplers see."""


class Proposals:
    """Asks the sampler of a search for points, and rejects those that break a limit or were tried,
    before they take a worker."""

    def __init__(
        self,
        config: SearchConfig,
        space: Space,
        study: optuna.Study,
        entries: Mapping[str, Entry],
        reference: Sequence[float],
        first: Sequence[dict[str, Any]],
        rows: Rows,
        elsewhere: Sequence[Elsewhere] = (),
    ) -> None:
        """`study` is the copy of the ledger that samplers see, `entries` are its trials by id,
        `rows` are run before all else, and `first` are points to try before the sampler is
        asked; it may learn from the trials `elsewhere`."""
        self.config = config
        self.space = space
        self.study = study
        self.entries = entries
        self.refused: Counter[str] = Counter()
        """how many proposals were rejected, by reason: `limits` or `known`"""
        self.proven = False
        """whether the last search for a new point that found none has looked at all there are"""
        self._first = first
        self.rows = rows
        self.problem = Problem(
            space,
            config.front_objectives,
            reference,
            config.cost_limits,
            config.cost_names,
            self._is_new,
            elsewhere,
            config.measured_limits,
        )

    def row(self) -> Proposal | None:
        """The next training of a row of a paper that is not in the ledger; None where all are."""
        left = self.rows.left(self.entries)
        return self._at(left[0].drawn, left[0].seed) if left else None

    def new_point(self) -> Proposal | None:
        """A point that satisfies all limits and that no trial has tried; None where there is none
        (`proven`), or where many draws found none."""
        number = len(self.entries)
        rng = random.Random(f"{self.config.search.seed}/{number}")
        for attempt in range(SAMPLER_TRIES):
            self._prepare_sampler(number, attempt, rng.randrange(2**31))
            found = self._asked(number)
            if found is not None:
                return found
        for point in self._others(rng):
            self.study.enqueue_trial(point)
            found = self._asked(number)
            if found is not None:
                return found
        return None

    def _asked(self, number: int) -> Proposal | None:
        """The next proposal of the sampler; None where it breaks a limit or was tried."""
        trial = self.study.ask()
        spec = self.space.walk(_drawing_from(trial), self.config.search.seed)
        entry = self._proposed(spec, number, trial.params)
        broken = violations(self.config, entry.costs)
        if entry.id not in self.entries and not broken:
            return entry, trial
        self.refused["limits" if broken else "known"] += 1
        # What is not in the ledger must not steer the next ask; such a failure has no reason.
        self.study.tell(trial, state=OptunaState.FAIL)
        return None

    def _others(self, rng: random.Random) -> Iterator[dict[str, Any]]:
        """Points for when the sampler keeps proposing what is known or forbidden. Those of a small
        space are listed. Of larger ones some are drawn from those within the limits; if all are
        known, all that are left are listed, where that is possible."""
        self.proven = True
        if self.listed is not None:
            left = [point for id_, point in self.listed.items() if id_ not in self.entries]
            yield from rng.sample(left, min(1, len(left)))
            return
        self.proven = False
        if not self._within.adds_up:
            for _ in range(RANDOM_TRIES):
                yield self._random_point(rng)
            return
        for context, codes in self._within.drawn(rng, WITHIN_TRIES):
            yield context.point(codes)
        every = self._within.every()
        if every is not None:
            for context, codes in rng.sample(every, len(every)):
                point = context.point(codes)
                if self._is_new(point):
                    yield point
            self.proven = True

    @cached_property
    def _within(self) -> Within:
        from bitfront.search.samplers.surrogate.atlas import Atlas  # SciPy
        from bitfront.search.samplers.surrogate.within import Within  # SciPy

        limits = self.config.cost_limits
        return Within(Atlas(self.space, list(limits) or self.config.cost_names[:1]), limits)

    def _prepare_sampler(self, number: int, attempt: int, seed: int) -> None:
        """Give the study a freshly seeded sampler, which makes each ask a function of the ledger
        alone: a resumed search asks what an undisturbed one would have asked."""
        kind = self.config.search.sampler
        place = number - len(self.rows.ids & self.entries.keys()) if self._first else 0
        if attempt == 0 and place < len(self._first):
            kind = "random"  # every parameter is given
            self.study.enqueue_trial(self._first[place])
        self.study.sampler = make_sampler(kind, seed, self.problem)

    def look_ahead(self) -> None:
        """Let the sampler say what it expects of the next trials, without asking for one."""
        seed = random.Random(f"{self.config.search.seed}/{len(self.entries)}").randrange(2**31)
        SAMPLERS.get(self.config.search.sampler).look_ahead(seed, self.problem, self.study)

    def promises(self) -> Promises | None:
        """What the sampler expects of the best new point and of every paused trial by its number in
        the study."""
        seed = random.Random(f"{self.config.search.seed}/{len(self.entries)}").randrange(2**31)
        return SAMPLERS.get(self.config.search.sampler).promises(seed, self.problem, self.study)

    def repeat(self, running: Counter[str], params_of: Callable[[str], Any]) -> Proposal | None:
        """Another seed for the finished point where it tells most about the front. `running` counts
        the open trials per point, `params_of` returns the drawn parameters of a trial by its id."""
        if not self.config.search.confirm:
            return None
        entries, objectives = list(self.entries.values()), self.config.front_objectives
        if self.config.measured_limits:
            able = {e.point for e in keeping(self.config, merged(entries, objectives))}
            entries = [e for e in entries if e.point in able]
        chosen = next_repeat(entries, objectives, running)
        if chosen is None:
            return None
        seeds = {e.spec.seed for e in self.entries.values() if e.point == chosen.point}
        seed = next(s for s in itertools.count(self.config.search.seed) if s not in seeds)
        return self._at(params_of(chosen.id), seed)

    def _at(self, drawn: dict[str, Any], seed: int) -> Proposal:
        """The trial at a point of which all drawn values are given, with this seed."""
        self.study.sampler = optuna.samplers.RandomSampler()
        self.study.enqueue_trial(drawn)
        trial = self.study.ask()
        spec = self.space.walk(_drawing_from(trial), self.config.search.seed)
        spec = spec.model_copy(update={"seed": seed})
        return self._proposed(spec, len(self.entries), trial.params), trial

    @cached_property
    def listed(self) -> dict[str, dict[str, Any]] | None:
        """Every different trial of the space that satisfies the limits: its id, and a point that
        makes it. None where the space has too many points to list them."""
        if self.every_entry is None:
            return None
        found: dict[str, dict[str, Any]] = {}
        for entry, point in self.every_entry:
            if not violations(self.config, entry.costs):
                found.setdefault(entry.id, point)
        return found

    @cached_property
    def every_entry(self) -> list[tuple[Entry, dict[str, Any]]] | None:
        """All points of a small space as trials that nobody has started; several may have one id.
        None where the space is too large."""
        points = every_point(self.space, LISTED_POINTS, self.config.search.seed)
        if points is None:
            return None
        return [(self._proposed(spec, 0, point), point) for point, spec in points]

    def _is_new(self, point: dict[str, Any]) -> bool:
        """Whether a point satisfies the limits and no trial has tried it."""
        spec = self.space.walk(lambda name, _domain: point[name], self.config.search.seed)
        entry = self._proposed(spec, 0, point)
        return entry.id not in self.entries and not violations(self.config, entry.costs)

    def _proposed(self, spec: TrialSpec, number: int, params: dict[str, Any]) -> Entry:
        """The trial of a spec, not started yet."""
        spec = spec.canonical()
        return Entry(
            id=spec.fingerprint(self.config.name),
            number=number,
            state=TrialState.RUNNING,
            stored=spec,
            costs=self.space.costs(spec),
            point=point_of(spec, self.config.name),
            drawn=without_plan(params),
            started=time.time(),
        )

    def _random_point(self, rng: random.Random) -> dict[str, Any]:
        """A random point, for when the sampler keeps proposing what is known or forbidden. The
        share of each level is drawn first, so that cheap and dear plans are as likely as others."""
        plan = self.space.plan
        levels = plan.levels if isinstance(plan, FreePlan) else ()
        weights = [rng.random() for _ in levels]

        def draw(name: str, domain: Domain) -> Any:
            if levels and name.startswith("plan."):
                return rng.choices(levels, weights)[0]
            return random_value(domain, rng)

        return recorded(self.space, draw)


def _drawing_from(trial: optuna.Trial) -> Any:
    """A function that draws a parameter from the sampler behind an Optuna trial."""

    def draw(name: str, domain: Domain) -> Any:
        return trial._suggest(name, distribution(domain))

    return draw
