"""The ledger: an Optuna study on disk that is the truth about a search.

Samplers work on a copy of it in memory; every trial is written through when it starts and when it
ends. Limits and duplicates are settled here, before a worker is taken."""

from __future__ import annotations

import itertools
import json
import math
import random
import sqlite3
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState

from bitfront.search.config.bounds import reference_point, violations
from bitfront.search.config.known import COSTS
from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.disks import network_disk
from bitfront.search.ledger.entry import Entry, stored_entry, without_plan
from bitfront.search.ledger.environment import environment
from bitfront.search.ledger.networks import Networks
from bitfront.search.ledger.optuna_log import silence
from bitfront.search.ledger.records import (
    FORMAT_KEY,
    LEDGER_FORMAT,
    MODES,
    arranged,
    check_ledger_format,
    objectives_in_order,
)
from bitfront.search.ledger.states import OPTUNA_STATES, TrialState
from bitfront.search.samplers.problem import Problem, distribution
from bitfront.search.samplers.registry import make_sampler
from bitfront.search.session.interrupts import obey
from bitfront.search.session.status_line import duration
from bitfront.search.urls import sqlite_path, with_driver
from bitfront.spaces.listing import every_point
from bitfront.spaces.space import FreePlan, Space, random_value, recorded
from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.parameters import Domain
from bitfront.trainables.task import TrialSpec

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

T = TypeVar("T")
Say = Callable[[str], None]
silence()

DIRECTIONS = {"max": StudyDirection.MAXIMIZE, "min": StudyDirection.MINIMIZE}
SAMPLER_TRIES = 10
# How long a database that is away is waited for, and between two attempts at most.
PATIENCE_SECONDS = 600.0
LONGEST_PAUSE = 5.0
# Between two words about it, and until a ctrl-C is heard.
TELLING_SECONDS = 30.0
LONGEST_DEAFNESS = 0.2
# What SQLite says of a full disk.
NO_ROOM = "disk is full"
RANDOM_TRIES = 300
# A space of at most so many points is listed when the sampler finds nothing new in it.
LISTED_POINTS = 2000
OPENING_ATTEMPTS = 50


class LedgerLostError(UserError):
    """The database behind the ledger is away and stayed away."""


class Ledger:
    """Opened by one driver at a time; readers use `read_entries`."""

    def __init__(
        self,
        url: str,
        config: SearchConfig,
        space: Space,
        first: Sequence[dict[str, Any]] = (),
        owner: str | None = None,
    ) -> None:
        """`first` are points to try before the sampler has a say; kept for later turns. `owner` is
        the identity of the search, where others may have one of the same name in the database."""
        self.config = config
        self.space = space
        self.storage = open_storage(url)
        self.place = sqlite_path(url)
        """where a SQLite ledger is"""
        self._file_is = identity_of(self.place)
        directions = [DIRECTIONS[mode] for mode in config.objectives.values()]
        notes = {"first": list(first)} if first else {}
        # A disk that is full is told now; waiting is for a search that has begun.
        self.study = persistently(lambda: self._opened(directions, owner, notes), patience=0.0)
        self.reference = self._arranged(self.study.user_attrs["reference"])
        self._first: list[dict[str, Any]] = self.study.user_attrs.get("first", [])
        self.networks = Networks.from_json(self.study.user_attrs.get("networks"))
        self.mirror = optuna.create_study(
            directions=directions, sampler=optuna.samplers.RandomSampler()
        )
        self.entries: dict[str, Entry] = {}
        # Kept, not counted anew: a long search asks for them at every turn.
        self._counts: Counter[TrialState] = Counter()
        self._open: dict[str, Entry] = {}
        self.explored = 0
        self._disk_ids: dict[str, int] = {}
        self._mirror_numbers: dict[str, int] = {}
        self._handed_out: set[str] = set()
        self.exhausted = False
        self.say: Say = lambda text: None
        """told when a database or a disk has to be waited for"""
        # Why points that were proposed in this turn are no trials: `limits`, or `known`.
        self.refused: Counter[str] = Counter()
        self._problem = Problem(
            space, config.front_objectives, self.reference, config.limits, COSTS, self._is_new
        )
        for trial in self.study.get_trials(deepcopy=False):
            self._remember(trial)
        self._check_percentages()

    def _settle_order(self, study: optuna.Study) -> list[str]:
        """The objectives in the order of the values on disk, which is that of the driver that began
        the search. Here they have the order of the configuration."""
        modes = [MODES[direction.name] for direction in study.directions]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental
            names = study.metric_names or []
            order = objectives_in_order(self.config.objectives, names, modes)
            if names != order:
                study.set_metric_names(order)
        return order

    def _arranged(self, values: Sequence[float]) -> list[float]:
        return arranged(values, self._order, self.config.objectives)

    def _remember(self, trial: FrozenTrial) -> None:
        if trial.values is not None:
            trial = copy(trial)
            trial.values = self._arranged(trial.values)
        entry = entry_of(trial, list(self.config.objectives))
        if entry.values is not None:
            trial.values = entry.values
        if "flops_own_pct" not in entry.costs:
            entry.restate(self.space.full_flops)
        self._disk_ids[entry.id] = trial._trial_id
        self._mirror_numbers[entry.id] = len(self.entries)
        self._enter(entry)
        self.mirror.add_trial(trial)

    def _opened(
        self, directions: list[StudyDirection], owner: str | None, notes: dict[str, Any]
    ) -> optuna.Study:
        """The study of this search, with `notes` that stay as they were when it was made."""
        study = optuna.create_study(
            study_name=self.config.name,
            storage=self.storage,
            directions=directions,
            load_if_exists=True,
            sampler=optuna.samplers.RandomSampler(),
        )
        check_ledger_format(study.user_attrs.get(FORMAT_KEY), self.config.name)
        self._claim(study, owner)
        try:
            study.set_user_attr(FORMAT_KEY, LEDGER_FORMAT)
            self._order = self._settle_order(study)
            if "reference" not in study.user_attrs:
                reference = reference_point(self.config, self.space)
                order = list(self.config.objectives)
                study.set_user_attr("reference", arranged(reference, order, self._order))
            for key in notes.keys() - study.user_attrs.keys():
                study.set_user_attr(key, notes[key])
            study.set_user_attr("environment", environment())
        except BaseException:
            forget_study(self.storage, self.config.name)
            raise
        return study

    def _claim(self, study: optuna.Study, owner: str | None) -> None:
        """Two searches of one name would train each other's trials."""
        if owner is None:
            return
        known = study.user_attrs.get("owner")
        if known is None:
            study.set_user_attr("owner", owner)
        elif known != owner:
            raise UserError(
                f"the database has another search called '{self.config.name}'",
                f"give this one a name of its own (--name); if it is the same one and its folder "
                f"was lost, make a folder of its name with {known} in a file 'identity'",
            )

    def _check_percentages(self) -> None:
        """Trials of version 0.1 and of today under one limit would be held to two."""
        several = any(name.startswith("model.") for name in self.space.overrides)
        if not several or "flops_pct" not in {*self.config.objectives, *self.config.limits}:
            return
        if any(entry.restated for entry in self.entries.values()):
            raise UserError(
                f"search '{self.config.name}' was begun by bitfront 0.1, where flops_pct was of "
                "each network's own size; that is flops_own_pct now",
                f"continue it as it was meant: bitfront resume {self.config.name}",
            )

    def check_there(self) -> None:
        """Raise where the file of a SQLite ledger is not the one that was opened: SQLite goes on
        writing to a file that was deleted, and all of it would be gone with the driver."""
        if self.place is None or identity_of(self.place) == self._file_is:
            return
        kept = self._rescued(self.place)
        what = "replaced" if self.place.exists() else "deleted"
        hint = "what it held could not be kept"
        if kept is not None:
            hint = (
                f"what it held is in {kept.name} beside it; to go on from that, rename it to "
                f"{self.place.name}, then: bitfront resume {self.config.name}"
            )
        raise LedgerLostError(f"the ledger {self.place} was {what} while the search ran", hint)

    def _rescued(self, file: Path) -> Path | None:
        """A copy of the ledger as the open connection still has it, if that can be made."""
        kept = file.with_name(f"{file.stem}-rescued{file.suffix}")
        try:
            kept.unlink(missing_ok=True)
            # Not a new connection, which would open another file.
            with (
                closing(self.storage._backend.engine.raw_connection()) as held,  # type: ignore[attr-defined]
                closing(sqlite3.connect(kept)) as copied,
            ):
                held.driver_connection.backup(copied)
                copied.execute("SELECT COUNT(*) FROM trials")
        except (OSError, sqlite3.Error):
            with suppress(OSError):
                kept.unlink(missing_ok=True)
            return None
        return kept

    def note(self, key: str, value: Any) -> None:
        """Keep something about the search itself for later turns."""
        self._persistently(lambda: self.study.set_user_attr(key, value))

    def _persistently(self, write: Callable[[], T]) -> T:
        self.check_there()
        return persistently(write, say=self.say, place=self.place)

    def noted(self, key: str) -> Any:
        return self.study.user_attrs.get(key)

    def _enter(self, entry: Entry) -> None:
        self.entries[entry.id] = entry
        self._counts[entry.state] += 1
        self.explored += entry.spec.seed == self.config.search.seed
        if entry.state == TrialState.RUNNING:
            self._open[entry.id] = entry

    def interrupted(self) -> list[Entry]:
        """Trials a driver that is gone left running, and that nobody has taken up again."""
        return [e for e in self._open.values() if e.id not in self._handed_out]

    def hand_back(self, trial_id: str) -> None:
        """Nobody trains the trial now: it is the next one that is asked for."""
        self._handed_out.discard(trial_id)

    def count(self, *states: TrialState) -> int:
        return sum(self._counts[state] for state in states)

    def ask(self) -> Entry | None:
        """The next trial to train: an interrupted one first, then a new point that satisfies all
        limits and that no trial has tried. None when the budget is spent or nothing is left."""
        for entry in self.interrupted():
            self._handed_out.add(entry.id)
            return entry
        if len(self.entries) >= self.config.search.trials:
            return None
        found = None
        if not self.exhausted and self.explored < self.exploring:
            found = self._new_point()
            self.exhausted = found is None
        if found is None:
            found = self._repeat()
        if found is None and not self.exhausted and not self._open:
            # Nothing is left to repeat: the rest of the budget is for new points after all.
            found = self._new_point()
            self.exhausted = found is None
        if found is None:
            return None
        entry, trial = found
        self._write_start(entry, trial)
        return entry

    @property
    def exploring(self) -> int:
        """How many trials go to new points; the others confirm with other seeds."""
        search = self.config.search
        return search.trials - math.floor(search.confirm * search.trials)

    def _repeat(self) -> tuple[Entry, optuna.Trial] | None:
        """Another seed for a point that is finished, where it changes the front most."""
        if not self.config.search.confirm:
            return None
        from bitfront.search.session.repeats import next_repeat

        running = Counter(e.point for e in self._open.values())
        objectives = self.config.front_objectives
        chosen = next_repeat(self.entries.values(), objectives, running)
        if chosen is None:
            return None
        seeds = {e.spec.seed for e in self.entries.values() if e.point == chosen.point}
        seed = next(s for s in itertools.count(self.config.search.seed) if s not in seeds)
        params = self.mirror.get_trials(deepcopy=False)[self._mirror_numbers[chosen.id]].params
        self.mirror.sampler = optuna.samplers.RandomSampler()
        self.mirror.enqueue_trial(params)
        trial = self.mirror.ask()
        spec = self.space.walk(_drawing_from(trial), self.config.search.seed)
        spec = spec.model_copy(update={"seed": seed})
        return self._proposed(spec, len(self.entries), trial.params), trial

    def _new_point(self) -> tuple[Entry, optuna.Trial] | None:
        number = len(self.entries)
        rng = random.Random(f"{self.config.search.seed}/{number}")
        for attempt in range(SAMPLER_TRIES + RANDOM_TRIES):
            # A fresh, seeded sampler makes each ask a function of the ledger alone: a resumed
            # search asks what the undisturbed one would have asked.
            if attempt < SAMPLER_TRIES:
                seed = rng.randrange(2**31)
                kind = self.config.search.sampler
                if attempt == 0 and number < len(self._first):
                    kind = "random"  # has nothing to decide
                    self.mirror.enqueue_trial(self._first[number])
                self.mirror.sampler = make_sampler(kind, seed, self._problem)
            elif self.listed is not None:
                left = [point for id_, point in self.listed.items() if id_ not in self.entries]
                if not left:
                    return None
                self.mirror.enqueue_trial(rng.choice(left))
            else:
                self.mirror.enqueue_trial(self._random_point(rng))
            trial = self.mirror.ask()
            spec = self.space.walk(_drawing_from(trial), self.config.search.seed)
            entry = self._proposed(spec, number, trial.params)
            broken = violations(self.config, entry.costs)
            if entry.id not in self.entries and not broken:
                return entry, trial
            self.refused["limits" if broken else "known"] += 1
            # Forgotten by every sampler: what is not in the ledger must not steer the next ask.
            self.mirror.tell(trial, state=OptunaState.FAIL)
        return None

    @cached_property
    def listed(self) -> dict[str, dict[str, Any]] | None:
        """Every different trial there is that satisfies the limits, by its id, as a point that
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
        """All points of a small space as trials that nobody has started; several may be the same
        trial."""
        points = every_point(self.space, LISTED_POINTS, self.config.search.seed)
        if points is None:
            return None
        return [(self._proposed(spec, 0, point), point) for point, spec in points]

    def _is_new(self, point: dict[str, Any]) -> bool:
        """Whether a point satisfies the limits and no trial has tried it."""
        spec = self.space.walk(lambda name, domain: point[name], self.config.search.seed)
        entry = self._proposed(spec, 0, point)
        return entry.id not in self.entries and not violations(self.config, entry.costs)

    def _proposed(self, spec: TrialSpec, number: int, params: dict[str, Any]) -> Entry:
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
        """A point for when the sampler keeps proposing what is known or forbidden. The share of
        each level is drawn first, so that cheap and dear plans are as likely as middling ones."""
        plan = self.space.plan
        levels = plan.levels if isinstance(plan, FreePlan) else ()
        weights = [rng.random() for _ in levels]

        def draw(name: str, domain: Domain) -> Any:
            if levels and name.startswith("plan."):
                return rng.choices(levels, weights)[0]
            return random_value(domain, rng)

        return recorded(self.space, draw)

    def _write_start(self, entry: Entry, trial: optuna.Trial) -> None:
        if self.networks.learn(entry.spec.task):
            self.note("networks", self.networks.as_json())
        template = create_trial(
            state=OptunaState.RUNNING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={
                "id": entry.id,
                "spec": entry.spec.model_dump(mode="json"),
                "costs": entry.costs,
                "point": entry.point,
            },
            # NSGA-II keeps a trial's generation there.
            system_attrs=self.mirror.get_trials(deepcopy=False)[trial.number].system_attrs,
        )
        study_id = self.study._study_id
        self._disk_ids[entry.id] = self._persistently(
            lambda: self.storage.create_new_trial(study_id, template)
        )
        self._mirror_numbers[entry.id] = trial.number
        self._enter(entry)
        self._handed_out.add(entry.id)

    def tell(
        self,
        trial_id: str,
        state: TrialState,
        metrics: dict[str, float] | None = None,
        history: list[dict[str, float]] | None = None,
        failure: str | None = None,
        message: str | None = None,
    ) -> Entry:
        """Record the end of a trial: complete with a value for every objective, stopped, or failed
        with a reason. A second call for the same trial changes nothing."""
        entry = self.entries[trial_id]
        if entry.state != TrialState.RUNNING:
            return entry
        measured, rows = dict(metrics or {}), list(history or [])
        values = None
        if state == TrialState.COMPLETE:
            known = {**entry.costs, **measured}
            values = [float(known.get(name, math.nan)) for name in self.config.objectives]
            if not all(map(math.isfinite, values)):
                state, failure, values = TrialState.FAILED, "nan", None
        result = {
            "metrics": measured,
            "history": _columns(rows),
            "failure": failure,
            "message": message,
            "lives": entry.lives,
        }
        disk = self._disk_ids[trial_id]
        optuna_state = next(OptunaState[s] for s, name in OPTUNA_STATES.items() if name == state)
        # Before anything else: a trial whose end cannot be written has not ended.
        stored = values and arranged(values, list(self.config.objectives), self._order)
        self._persistently(lambda: self._ended(disk, optuna_state, stored, result))
        entry.metrics, entry.history, entry.values = measured, rows, values
        entry.failure, entry.message = failure, message
        entry.state, entry.ended = state, time.time()
        self._counts[TrialState.RUNNING] -= 1
        self._counts[state] += 1
        del self._open[trial_id]
        number = self._mirror_numbers[trial_id]
        mirrored = self.mirror.get_trials(deepcopy=False)[number]._trial_id
        self.mirror._storage.set_trial_user_attr(mirrored, "result", result)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.mirror.tell(number, values=entry.values, state=optuna_state)
        return entry

    def _ended(
        self, disk: int, state: OptunaState, values: list[float] | None, result: dict[str, Any]
    ) -> None:
        """Write a trial's end; a second attempt finds what the first one may have done."""
        from optuna.exceptions import UpdateFinishedTrialError

        with suppress(UpdateFinishedTrialError):
            self.storage.set_trial_user_attr(disk, "result", result)
            self.storage.set_trial_state_values(disk, state, values)


def identity_of(file: Path | None) -> tuple[int, int] | None:
    """What tells a file from another of the same name; None where there is none."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found is not None else None


@contextmanager
def ledger_errors(name: str) -> Iterator[None]:
    """What Optuna says of a damaged database, in a sentence: it has a dozen ways."""
    from optuna.exceptions import OptunaError

    from bitfront.search.ledger.reader import DAMAGED, database_errors

    known: tuple[type[Exception], ...] = (OptunaError, *database_errors(), *DAMAGED)
    try:
        yield
    except known as error:
        cause = error.__cause__ if isinstance(error, OptunaError) and error.__cause__ else error
        raise UserError(
            f"the ledger of '{name}' cannot be read: {first_line(cause, typed=True)}"
        ) from error


def persistently(
    write: Callable[[], T],
    patience: float | None = None,
    say: Say = lambda text: None,
    place: Path | None = None,
) -> T:
    """The outcome of writing to the ledger (in the file `place`, if it is one). A database that is
    away, restarts or has no room is waited for, which is told at once and every so often; an
    attempt may be repeated although the one before had come through."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import InterfaceError, OperationalError

    deadline = time.monotonic() + (PATIENCE_SECONDS if patience is None else patience)
    pause, told = 0.1, -math.inf
    while True:
        try:
            return write()
        except (StorageInternalError, OperationalError, InterfaceError) as error:
            cause = error.__cause__ if isinstance(error, StorageInternalError) else error
            passing = isinstance(cause, (InterfaceError, OperationalError))
            reason = first_line(cause or error)
            now = time.monotonic()
            if not passing or now + pause > deadline:
                raise LedgerLostError(
                    f"the ledger cannot be written: {_trouble(reason, place)}",
                    "nothing that has ended is lost; when it is back: bitfront resume NAME",
                ) from None
            if now - told >= TELLING_SECONDS:
                told = now
                say(
                    f"the ledger cannot be written now, {_trouble(reason, place)}: waiting, up to "
                    f"{duration(deadline - now)}; ctrl-C ends, nothing that has ended is lost"
                )
        _sleep(pause)
        pause = min(LONGEST_PAUSE, 2 * pause)


def _trouble(reason: str, place: Path | None) -> str:
    """What keeps the ledger from being written, in words."""
    if place is not None and NO_ROOM in reason:
        return f"the disk of {place.parent} is full"
    return reason


def _sleep(seconds: float) -> None:
    """Tune notes a ctrl-C, and looks at it when it is its turn again."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        obey()
        time.sleep(min(left, LONGEST_DEAFNESS))
    obey()


def forget_study(storage: BaseStorage, name: str) -> None:
    """Take the study of a search away that has no trial yet. A database that is away keeps it."""
    with suppress(Exception):
        study = optuna.load_study(study_name=name, storage=storage)
        if not study.get_trials(deepcopy=False):
            optuna.delete_study(study_name=name, storage=storage)


def open_storage(url: str) -> BaseStorage:
    """The store behind the ledger; SQLite is tuned for one writer and many readers, `memory:` is
    gone with the process."""
    if url == "memory:":
        return optuna.storages.InMemoryStorage()
    from sqlalchemy import event
    from sqlalchemy.exc import IntegrityError, SQLAlchemyError

    from bitfront.search.ledger.storage import LedgerStorage

    url = with_driver(url)
    options: dict[str, Any] = {}
    if url.startswith("sqlite"):
        options = {"connect_args": {"timeout": 60}}
    else:
        # A server that was restarted has closed the connections kept for later.
        options = {"pool_pre_ping": True}
    for attempt in range(OPENING_ATTEMPTS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                storage = LedgerStorage(url, engine_kwargs=options)
            break
        except (SQLAlchemyError, ImportError, RuntimeError) as error:
            reason = first_line(error)
            # Somebody else, perhaps a reader, is making the tables of a new ledger just now.
            race = isinstance(error, IntegrityError) or "already exists" in reason
            if not race or attempt + 1 == OPENING_ATTEMPTS:
                raise UserError(f"the ledger cannot be opened: {reason}") from None
            time.sleep(0.1)
    path = sqlite_path(url)
    if path is not None:
        # Many read while one writes; but not through memory that another machine does not share.
        there = network_disk(path.parent) is not None
        journal, synchronous = ("DELETE", "FULL") if there else ("WAL", "NORMAL")

        @event.listens_for(storage.engine, "connect")
        def set_pragmas(connection: Any, record: Any) -> None:
            connection.execute(f"PRAGMA journal_mode={journal}")
            connection.execute(f"PRAGMA synchronous={synchronous}")

        storage.engine.dispose()
    return optuna.storages.get_storage(storage)


def read_entries(url: str, name: str) -> list[Entry]:
    """All trials of a search, for reading only; works while a driver writes."""
    from bitfront.search.ledger.reader import LedgerReader

    reader = LedgerReader(url, name)
    reader.read()
    return reader.entries


def point_of(spec: TrialSpec, search: str) -> str:
    """What trials share that differ in nothing but their seed."""
    return spec.model_copy(update={"seed": 0}).fingerprint(search)


def entry_of(trial: FrozenTrial, objectives: Sequence[str] = ()) -> Entry:
    return stored_entry(
        trial.number,
        trial.state.name,
        trial.user_attrs,
        without_plan(trial.params),
        list(trial.values) if trial.values is not None else None,
        trial.datetime_start,
        trial.datetime_complete,
        objectives,
    )


def _drawing_from(trial: optuna.Trial) -> Any:
    def draw(name: str, domain: Domain) -> Any:
        return trial._suggest(name, distribution(domain))

    return draw


def _columns(history: Iterable[dict[str, float]]) -> dict[str, list[float | None]]:
    """Learning curves by metric: half the size of a row an epoch."""
    rows = list(history)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    # What JSON cannot say (nan, inf) is left out rather than written in a dialect.
    return json.loads(json.dumps(columns), parse_constant=lambda text: None)
