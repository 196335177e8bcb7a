"""Pausing: a trial rests at a rung with its checkpoint, and is taken up again when more is expected
of it, per epoch that it still needs, than of a new one (freeze-thaw: Swersky, Snoek and Adams,
2014, arXiv:1406.3896). Every decision is a function of the ledger and the seed; what the model
expects is computed in `samplers/surrogate/promising.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.inheriting import InheritingReport, inheriting_report
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.session.early_stopping import (
    StoppingReport,
    report,
    rung_epoch,
    share_number,
)

# Rungs are believed where their rank correlation with the end is above 0 by so many of its standard
# errors: one in ten that tell nothing are believed.
ERRORS = 1.28


@dataclass(frozen=True)
class Hopes:
    """The hypervolume that trials are expected to add, by the model of the sampler."""

    new: float
    """the best point that was not tried"""
    paused: Mapping[str, float]
    """by the id of a paused trial"""


class Trials(Protocol):
    """The part of a ledger that is needed here."""

    entries: dict[str, Entry]

    def hopes(self) -> Hopes | None: ...

    def pause(
        self, trial_id: str, rung: float, history: list[dict[str, float]], kept_bytes: int
    ) -> None: ...

    def take_up(self, trial_id: str) -> None: ...


class Pausing:
    """Decides who rests, who is taken up, and who is given up."""

    def __init__(self, config: SearchConfig, ledger: Trials) -> None:
        assert config.search.pause is not None
        self.spec = config.search.pause
        self._quality = config.quality.name
        self._ledger = ledger

    def rests(self, entry: Entry, history: list[dict[str, float]], kept_bytes: int) -> bool:
        """Whether a trial with this curve so far rests now; it is written into the ledger first,
        and goes on where it would be the next one to be taken up."""
        rung = self._rung(entry, history[-1]["epoch"])
        if rung is None or is_control(self.spec.control, entry) or not self.telling(rung).tells:
            return False
        self._ledger.pause(entry.id, rung, history, kept_bytes)
        if self.next() is not entry:
            return True
        self._ledger.take_up(entry.id)
        return False

    def _rung(self, entry: Entry, epoch: float) -> float | None:
        """The rung that this epoch of a trial is; None where it is none, or one that the trial has
        passed before."""
        for share in self.spec.rungs:
            at = rung_epoch(share, entry.spec.task.epochs)
            if epoch == at < entry.spec.task.epochs and share > (entry.rung or 0.0):
                return share
        return None

    def epochs(self, entry: Entry) -> list[int]:
        """The epochs after which a trial may rest."""
        return [rung_epoch(share, entry.spec.task.epochs) for share in self.spec.rungs]

    def telling(self, rung: float) -> Telling:
        """What a rung tells of the end."""
        return Telling.of(self._ledger.entries.values(), rung, self._quality, self.spec.least)

    def next(self) -> Entry | None:
        """The paused trial that is taken up now; None where a new one is worth more, also when
        none begins any more."""
        paused = self._paused
        hopes = self._ledger.hopes() if paused else None
        if hopes is None:
            return None
        best = max(paused, key=lambda e: (_rate(e, hopes), -e.number))
        return best if _rate(best, hopes) >= hopes.new / best.spec.task.epochs else None

    def overflow(self) -> list[Entry]:
        """The paused trials that are given up because there are too many checkpoints, or too large
        ones: those of which least is expected."""
        paused = self._paused
        size = sum(e.kept_bytes for e in paused)
        if len(paused) <= self.spec.checkpoints and size <= 1e9 * self.spec.gb:
            return []
        hopes = self._ledger.hopes() or Hopes(0.0, {})
        given_up: list[Entry] = []
        for entry in sorted(paused, key=lambda e: (_rate(e, hopes), -e.number)):
            left = len(paused) - len(given_up)
            if left <= self.spec.checkpoints and size <= 1e9 * self.spec.gb:
                break
            given_up.append(entry)
            size -= entry.kept_bytes
        return given_up

    @property
    def _paused(self) -> list[Entry]:
        return [e for e in self._ledger.entries.values() if e.state == TrialState.PAUSED]


def _left(entry: Entry) -> int:
    """The epochs that a paused trial still needs."""
    return entry.spec.task.epochs - len(entry.history)


def _rate(entry: Entry, hopes: Hopes) -> float:
    """The expected gain per epoch that a paused trial still needs."""
    return hopes.paused.get(entry.id, 0.0) / _left(entry)


def is_control(share: float, entry: Entry) -> bool:
    """Whether the trial never rests. Control trials are a share of all, chosen by id; from them it
    is measured what rungs tell."""
    return share_number(entry.id) < share


@dataclass(frozen=True)
class Telling:
    """What a rung tells of the end: Kendall's tau between the quality at both, over the trials that
    never rested, whatever was expected of them."""

    rung: float
    trials: int
    tau: float
    error: float
    """the standard error of tau where a rung tells nothing: over n trials the root of
    2 (2n + 5) / (9 n (n - 1)) (Kendall, 1938, doi:10.1093/biomet/30.1-2.81)"""
    enough: bool
    """whether there are as many trials as it takes to say anything"""

    @property
    def tells(self) -> bool:
        return self.enough and self.tau > ERRORS * self.error

    @staticmethod
    def of(entries: Iterable[Entry], rung: float, quality: str, least: int) -> Telling:
        """From the trials of a search."""
        pairs = []
        for entry in entries:
            if entry.state == TrialState.COMPLETE and entry.rung is None:
                at = rung_epoch(rung, entry.spec.task.epochs)
                row = next((r for r in entry.history if r.get("epoch") == at), {})
                if quality in row and quality in entry.metrics:
                    pairs.append((row[quality], entry.metrics[quality]))
        n = len(pairs)
        if n < max(2, least):
            return Telling(rung, n, 0.0, 1.0, False)
        error = math.sqrt(2 * (2 * n + 5) / (9 * n * (n - 1)))
        return Telling(rung, n, _tau(pairs), error, True)

    def __str__(self) -> str:
        if not self.enough:
            return f"at {100 * self.rung:.0f} % not known yet ({self.trials} trials)"
        text = f"{self.tau:.2f} ± {self.error:.2f} at {100 * self.rung:.0f} %"
        return text if self.tells else f"{text}, which tells nothing: no trial rests there"


def _tau(pairs: Sequence[tuple[float, float]]) -> float:
    from scipy.stats import kendalltau

    tau = float(kendalltau(*zip(*pairs, strict=True)).statistic)
    return tau if math.isfinite(tau) else 0.0


@dataclass(frozen=True)
class PausingReport:
    """What pausing did."""

    weighed: int
    """trials that came to a rung at which they might rest"""
    resting: int
    """those that rest now"""
    given_up: int
    """those whose checkpoints were too many"""
    epochs_trained: int
    epochs_in_full: int
    rungs: list[Telling]

    @property
    def saved(self) -> float:
        """The share of epochs that were not trained."""
        return 1 - self.epochs_trained / self.epochs_in_full if self.epochs_in_full else 0.0

    def sentence(self) -> str:
        """The report in a sentence."""
        given_up = f", {self.given_up} were given up" if self.given_up else ""
        return (
            f"{self.weighed} trials were weighed at a rung, {self.resting} of them rest "
            f"now{given_up}; {100 * self.saved:.0f} % of the epochs saved; rank correlation with "
            f"the end {'; '.join(map(str, self.rungs))} of training"
        )


def saving(
    config: SearchConfig, entries: Sequence[Entry], front: set[str]
) -> StoppingReport | PausingReport | InheritingReport | None:
    """What early stopping, pausing or inheriting did to the trials of a search, of which `front`
    are on its front; None where it has none of them."""
    stopping, spec = config.search.early_stopping, config.search.pause
    if config.search.inherit is not None:
        return inheriting_report(config, entries)
    if stopping is not None:
        return report(stopping, config.front_objectives, entries, front)
    if spec is None:
        return None
    weighed = [e for e in entries if e.rung is not None]
    settled = [e for e in entries if e.state not in (TrialState.RUNNING, TrialState.FAILED)]
    return PausingReport(
        weighed=len(weighed),
        resting=sum(e.state == TrialState.PAUSED for e in weighed),
        given_up=sum(e.state == TrialState.STOPPED for e in weighed),
        epochs_trained=sum(len(e.history) for e in settled),
        epochs_in_full=sum(e.spec.task.epochs for e in settled),
        rungs=[Telling.of(entries, r, config.quality.name, spec.least) for r in spec.rungs],
    )


def saving_json(found: StoppingReport | PausingReport | InheritingReport | None) -> dict[str, Any]:
    """The report as `bitfront status --json` prints it, by the key of the YAML it is on."""
    kinds = ("early_stopping", StoppingReport), ("pause", PausingReport)
    every = (*kinds, ("inherit", InheritingReport))
    return {key: asdict(found) if isinstance(found, kind) else None for key, kind in every}
