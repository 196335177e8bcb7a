"""The ledger: an Optuna study on disk that is the truth about a search.

Every trial is written when it starts and when it ends. Samplers see a copy of the study in memory,
since an ask against a database would cost a transaction per parameter. How the next point is chosen
is in `proposals`, how the study is opened in `study`."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState

from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.outlook import OUTLOOK, Outlook
from bitfront.search.deciding.pausing import Hopes
from bitfront.search.ledger.entry import LOOK, PAUSE, Entry, Look, columns, entry_of
from bitfront.search.ledger.file_guard import FileGuard
from bitfront.search.ledger.networks import Networks
from bitfront.search.ledger.proposals import Proposals
from bitfront.search.ledger.records import arranged
from bitfront.search.ledger.states import OPTUNA_STATES, TrialState
from bitfront.search.ledger.storage import open_storage
from bitfront.search.ledger.study import check_percentages, directions_of, open_study
from bitfront.search.ledger.writing import Say, T, persistently
from bitfront.search.model_health import EVERY, HEALTH
from bitfront.search.samplers.problem import Elsewhere
from bitfront.search.session.rows import ROWS, Rows
from bitfront.search.urls import sqlite_path
from bitfront.spaces.space import Space

NO_ROWS = Rows()
# The note of trials of another search.
ELSEWHERE = "elsewhere"


class Ledger:
    """The ledger of a search as its driver writes it; a search has one driver at a time. Other
    processes read it with `reader.LedgerReader`."""

    def __init__(
        self,
        url: str,
        config: SearchConfig,
        space: Space,
        first: Sequence[dict[str, Any]] = (),
        owner: str | None = None,
        rows: Rows = NO_ROWS,
    ) -> None:
        """`first` are points to try before the sampler is asked, kept for later turns. `owner` is
        the identity of the search, where others in the database may have the same name. `rows` are
        those of a paper, which come before all else."""
        self.config = config
        self.space = space
        self.storage = open_storage(url)
        self._file = FileGuard(sqlite_path(url), self.storage, config.name)
        notes = {"first": list(first)} if first else {}
        # A full disk is an error now; only a search that has begun waits.
        self.study, self._order = persistently(
            lambda: open_study(self.storage, config, space, owner, notes), patience=0.0
        )
        self.reference = self._arranged(self.study.user_attrs["reference"])
        self.networks = Networks.from_json(self.study.user_attrs.get("networks"))
        self.in_memory = optuna.create_study(
            directions=directions_of(config), sampler=optuna.samplers.RandomSampler()
        )
        """the copy of the study that samplers see"""
        self.entries: dict[str, Entry] = {}
        # Kept up to date rather than counted anew: every ask needs them.
        self._counts: Counter[TrialState] = Counter()
        self._open: dict[str, Entry] = {}
        self.explored = 0
        """how many trials are of new points; the others repeat a point with another seed"""
        self._disk_ids: dict[str, int] = {}
        self._memory_numbers: dict[str, int] = {}
        self._handed_out: set[str] = set()
        self.told = 0
        """how often a trial has ended or paused in this turn"""
        self.exhausted = False
        """whether the last ask for a new point found none"""
        self.say: Say = lambda _text: None
        """called with a message when a database or a disk has to be waited for"""
        self.over: Callable[[], bool] = lambda: False
        """whether no further trial begins, although the budget of trials has some left"""
        self.promoted: Callable[[], Entry | None] = lambda: None
        """the paused trial that is taken up before a new one begins, if there is one"""
        self.inheriting: Callable[[Entry, Any], Look | None] = lambda _entry, _domains: None
        """whose weights a new trial is given, with Optuna's distributions of its parameters"""
        known = self.entries, self.reference, self.study.user_attrs.get("first", [])
        others = self.study.user_attrs.get(ELSEWHERE, [])
        self.proposals = Proposals(config, space, self.in_memory, *known, rows, others)
        for trial in self.study.get_trials(deepcopy=False):
            self._remember(trial)
        check_percentages(config, space, self.entries.values())
        settled = rows.notes(self.noted(ROWS) or [])
        if settled and settled != self.noted(ROWS):
            self.note(ROWS, settled)

    def _arranged(self, values: Sequence[float]) -> list[float]:
        """The values, given in the order on disk, in the order of the configuration."""
        return arranged(values, self._order, self.config.objectives)

    def _remember(self, trial: FrozenTrial) -> None:
        """Add a trial that is on disk to the entries and to the copy in memory."""
        if trial.values is not None:
            trial = copy(trial)
            trial.values = self._arranged(trial.values)
        entry = entry_of(trial, list(self.config.objectives))
        if entry.values is not None:
            trial.values = entry.values
        if "flops_own_pct" not in entry.costs:
            entry.restate(self.space.full_flops)
        self._disk_ids[entry.id] = trial._trial_id
        self._memory_numbers[entry.id] = len(self.entries)
        self._enter(entry)
        self.in_memory.add_trial(trial)

    def learn_from(self, elsewhere: Sequence[Elsewhere]) -> None:
        """Let the sampler know trials of another search, now and in later turns."""
        if elsewhere and self.noted(ELSEWHERE) is None:
            self.note(ELSEWHERE, list(elsewhere))
            self.proposals.problem.elsewhere = elsewhere

    def check_there(self) -> None:
        """Raise LedgerLostError where the file of a SQLite ledger is not the one that was
        opened."""
        self._file.check()

    def note(self, key: str, value: Any) -> None:
        """Store a value about the search itself for later turns."""
        self._persistently(lambda: self.study.set_user_attr(key, value))

    def noted(self, key: str) -> Any:
        """The value that `note` stored, or None."""
        return self.study.user_attrs.get(key)

    def _persistently(self, write: Callable[[], T]) -> T:
        self.check_there()
        return persistently(write, say=self.say, place=self._file.place)

    def _enter(self, entry: Entry) -> None:
        """Add a trial to the entries and to all counts."""
        self.entries[entry.id] = entry
        self._counts[entry.state] += 1
        self.explored += entry.spec.seed == self.config.search.seed
        if entry.state == TrialState.RUNNING:
            self._open[entry.id] = entry

    def interrupted(self) -> list[Entry]:
        """The trials that an earlier driver left running and that are not handed out yet. The
        thread that draws the bar asks, too: it reads a copy."""
        return [e for e in list(self._open.values()) if e.id not in self._handed_out]

    def hand_back(self, trial_id: str) -> None:
        """Hand a trial that no worker trains any more back, so that the next ask returns it."""
        self._handed_out.discard(trial_id)

    @property
    def begun(self) -> int:
        """How many trials there are."""
        return len(self.entries)

    def count(self, *states: TrialState) -> int:
        """How many trials are in one of these states."""
        return sum(self._counts[state] for state in states)

    def ask(self) -> Entry | None:
        """The next trial to train: an interrupted one first, then those of rows of a paper, then a
        new point, then another seed of a finished one. None when the budget is spent, or when
        nothing is left to try."""
        for entry in self.interrupted():
            self._handed_out.add(entry.id)
            return entry
        rows = self.proposals.rows
        promoted = None if rows.alone or self.over() else self.promoted()
        if promoted is not None:
            self.take_up(promoted.id)
            return promoted
        if not rows.alone and (len(self.entries) >= self.config.search.trials or self.over()):
            return None
        found = self.proposals.row()
        if found is None and rows.alone:
            return None
        if found is None and not self.exhausted and self.explored < self.exploring:
            found = self.proposals.new_point()
            self.exhausted = found is None
        if found is None:
            found = self._repeat()
        if found is None and not self.exhausted and not self._open:
            # No point is left to repeat: the rest of the budget goes to new ones.
            found = self.proposals.new_point()
            self.exhausted = found is None
        if found is None:
            return None
        entry, trial = found
        self._write_start(entry, trial)
        if entry.number % EVERY == 0:
            self.note_model()
        return entry

    @property
    def exploring(self) -> int:
        """How many trials of the budget are for new points; the others repeat points."""
        search = self.config.search
        trials = len(self.entries) + 1 if search.budget is None else search.trials
        return trials - math.floor(search.confirm * trials)

    def note_model(self) -> None:
        """Store how good the model of the sampler is and what it expects of the next trials, where
        it has one."""
        memory = self.proposals.problem.memory
        for key, found in ((HEALTH, memory.get("health")), (OUTLOOK, memory.get(OUTLOOK))):
            if found is not None and found.as_json() != self.noted(key):
                self.note(key, found.as_json())

    def look_ahead(self) -> None:
        """Store the same as of now, for a search that asks for no more trials."""
        self.proposals.look_ahead()
        self.note_model()

    def hopes(self) -> Hopes | None:
        """What the sampler expects of the best new point and of the paused trials."""
        found = self.proposals.promises()
        if found is None:
            return None
        named = {number: trial_id for trial_id, number in self._memory_numbers.items()}
        new, paused = found
        return Hopes(new, {named[number]: gain for number, gain in paused.items()})

    @property
    def outlook(self) -> Outlook | None:
        """What the next trials may add to the front; None where that is not known."""
        return Outlook.from_json(self.noted(OUTLOOK))

    def _repeat(self) -> tuple[Entry, optuna.Trial] | None:
        running = Counter(e.point for e in self._open.values())
        return self.proposals.repeat(running, lambda id_: self._in_memory(id_).params)

    def _in_memory(self, trial_id: str) -> FrozenTrial:
        """A trial as samplers see it."""
        return self.in_memory.get_trials(deepcopy=False)[self._memory_numbers[trial_id]]

    def _write_start(self, entry: Entry, trial: optuna.Trial) -> None:
        """Write a new trial to disk as running."""
        if self.networks.learn(entry.spec.task):
            self.note("networks", self.networks.as_json())
        entry.look = self.inheriting(entry, trial.distributions)
        looks = {} if entry.look is None else {LOOK: entry.look.as_json()}
        for key, value in looks.items():
            self.in_memory._storage.set_trial_user_attr(trial._trial_id, key, value)
        template = create_trial(
            state=OptunaState.RUNNING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={
                "id": entry.id,
                "spec": entry.spec.model_dump(mode="json"),
                "costs": entry.costs,
                "point": entry.point,
                **looks,
            },
            # NSGA-II stores the generation of a trial there.
            system_attrs=self.in_memory.get_trials(deepcopy=False)[trial.number].system_attrs,
        )
        study_id = self.study._study_id
        self._disk_ids[entry.id] = self._persistently(
            lambda: self.storage.create_new_trial(study_id, template)
        )
        self._memory_numbers[entry.id] = trial.number
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
        traceback: str | None = None,
    ) -> Entry:
        """Record the end of a trial: complete with a value for every objective, stopped, or failed
        with a reason. A second call for the same trial changes nothing."""
        entry, state = self.entries[trial_id], TrialState(state)
        if entry.state not in (TrialState.RUNNING, TrialState.PAUSED):
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
            "history": columns(rows),
            "failure": failure,
            "message": message,
            "traceback": traceback,
            "lives": entry.lives,
        }
        disk = self._disk_ids[trial_id]
        optuna_state = next(OptunaState[s] for s, name in OPTUNA_STATES.items() if name == state)
        # Written first: a trial whose end is not on disk has not ended.
        stored = values and arranged(values, list(self.config.objectives), self._order)
        self._persistently(lambda: self._ended(disk, optuna_state, stored, result))
        entry.metrics, entry.history, entry.values = measured, rows, values
        entry.failure, entry.message, entry.traceback = failure, message, traceback
        entry.ended = time.time()
        self._move(entry, state)
        self._open.pop(trial_id, None)
        number, copied = self._memory_numbers[trial_id], self._in_memory(trial_id)
        self.in_memory._storage.set_trial_user_attr(copied._trial_id, "result", result)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.in_memory.tell(number, values=entry.values, state=optuna_state)
        return entry

    def pause(
        self, trial_id: str, rung: float, history: list[dict[str, float]], kept_bytes: int
    ) -> None:
        """Let a running trial rest at a rung, with its curve up to there and a checkpoint."""
        entry = self.entries[trial_id]
        entry.rung, entry.history, entry.kept_bytes = rung, history, kept_bytes
        self._note_pause(entry, rests=True)
        self._move(entry, TrialState.PAUSED)
        del self._open[trial_id]

    def take_up(self, trial_id: str) -> None:
        """Let a paused trial run again: whoever asked for it trains it from its checkpoint, or from
        scratch where it was looked at."""
        entry = self.entries[trial_id]
        if entry.look is not None:
            self._note_look(entry, replace(entry.look, rests=False))
        else:
            self._note_pause(entry, rests=False)
        self._move(entry, TrialState.RUNNING)
        self._open[trial_id] = entry
        self._handed_out.add(trial_id)

    def looked(self, trial_id: str, history: list[dict[str, float]]) -> None:
        """Let a trial whose look has ended rest, with the learning curve of the look."""
        entry = self.entries[trial_id]
        assert entry.look is not None
        self._note_look(entry, replace(entry.look, history=history, rests=True))
        self._move(entry, TrialState.PAUSED)
        del self._open[trial_id]

    def void_look(self, trial_id: str, reason: str) -> None:
        """Note that a trial is trained from scratch at once, since there were no weights."""
        entry = self.entries[trial_id]
        if entry.look is not None:
            self._note_look(entry, replace(entry.look, void=reason))

    def _note_look(self, entry: Entry, look: Look) -> None:
        self._set_attribute(entry.id, LOOK, look.as_json())
        entry.look = look

    def _note_pause(self, entry: Entry, rests: bool) -> None:
        """Write where a trial paused, and whether it rests there now."""
        pause = {
            "rung": entry.rung,
            "history": columns(entry.history),
            "bytes": entry.kept_bytes,
            "rests": rests,
        }
        self._set_attribute(entry.id, PAUSE, pause)

    def _set_attribute(self, trial_id: str, key: str, value: dict[str, Any]) -> None:
        """Write an attribute of a trial to disk, then into the copy in memory."""
        disk = self._disk_ids[trial_id]
        self._persistently(lambda: self.storage.set_trial_user_attr(disk, key, value))
        copied = self._in_memory(trial_id)
        self.in_memory._storage.set_trial_user_attr(copied._trial_id, key, value)

    def _move(self, entry: Entry, state: TrialState) -> None:
        self.told += state != TrialState.RUNNING
        self._counts[entry.state] -= 1
        self._counts[state] += 1
        entry.state = state

    def _ended(
        self, disk: int, state: OptunaState, values: list[float] | None, result: dict[str, Any]
    ) -> None:
        """Write the end of a trial to disk; does nothing where an earlier attempt succeeded."""
        with suppress(UpdateFinishedTrialError):
            self.storage.set_trial_user_attr(disk, "result", result)
            self.storage.set_trial_state_values(disk, state, values)
