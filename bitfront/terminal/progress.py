"""The progress of a running search: on a terminal a bar with the estimated time left and a line per
ended trial above it, elsewhere lines only. The time is estimated in
`bitfront.search.session.eta`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from bitfront.search.durations import duration
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.settings import in_a_line, settings_of
from bitfront.search.session.eta import Eta
from bitfront.terminal.plans import FORMS, by_stage
from bitfront.terminal.status_line import StatusLine
from bitfront.terminal.tables import shortened, width
from bitfront.trainables.own_code import shown

if TYPE_CHECKING:
    from bitfront.search.session.session import Session

# Seconds between two lines about the whole search; every ended trial has a line besides.
LINE_SECONDS = 10.0
BAR_WIDTH = 24
# The line of a trial on a terminal of at most so many columns, and what is cut to fit it.
LINE_WIDTH = 80
PLAN_WIDTH = 20
METHOD_WIDTH = 12


class Progress:
    """Shows the progress of a session. It is called on every change, and decides what is
    printed."""

    def __init__(
        self,
        session: Session,
        quiet: bool = False,
        out: TextIO | None = None,
        line: StatusLine | None = None,
    ) -> None:
        self.session = session
        self.status = line or StatusLine(quiet, out)
        self.eta_model = Eta()
        self._started = time.monotonic()
        self._running = False
        self._reported = False
        self._last_line = 0.0
        self._facts = self._look()

    def _look(self) -> tuple[str, int, float]:
        """Best quality, size of the front and hypervolume. They are read when a trial ends and
        kept: the thread that draws the bar must not read a front that is being changed."""
        s = self.session
        ahead = s.ledger.outlook
        self._ahead = "" if ahead is None else ahead.short
        return s.config.quality.text(s.best, 1), len(s.front), 100 * s.hypervolume_share

    @property
    def out(self) -> TextIO:
        return self.status.out

    @out.setter
    def out(self, out: TextIO) -> None:
        self.status.out = out

    def start(self) -> None:
        self.status.ending = "ending trials; what they reported is kept ..."
        self._running = True
        self.status.watch(self.line, self._bar)

    def wait(self, text: str) -> None:
        self.status.wait(text)

    def expect(self, trial_seconds: float | None, slots: int) -> None:
        """Set the expected seconds per trial, and how many trials run at once."""
        self.eta_model.expect(trial_seconds, slots)

    def changed(
        self,
        ended: Entry | None = None,
        reported: tuple[Entry, dict[str, Any]] | None = None,
    ) -> None:
        """Show that a trial ended, or that one reported an epoch."""
        now = time.monotonic()
        self._reported = True
        if self.eta_model.trial_seconds is None and reported is not None:
            entry, result = reported
            if "seconds" in result:  # there was no estimate: make one from this epoch
                whole = result["seconds"] * entry.spec.task.epochs
                self.eta_model.expect(whole, self.session.running)
        self.eta_model.report(now, self.session.done)
        if ended is None:
            return
        self._facts = self._look()
        self.status.say(self.trial_line(ended))
        if now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            self.status.say(self.line())

    def nodes(self, there: Sequence[str], lost: Sequence[str]) -> None:
        """A lost node is told in a message of its own."""

    def look(self) -> None:
        """The bar draws itself."""

    def say(self, text: str) -> None:
        """Print a message above the bar."""
        self.status.say(text)

    def stop(self) -> None:
        self._running = False
        self.status.say(self.line())

    def eta(self) -> float | None:
        s = self.session
        found = self.eta_model.seconds(time.monotonic(), self._started, s.done, s.budget)
        left = None if s.rows.alone else s.ending.seconds_left
        if left is None:
            return None if s.total is None else found
        return left if found is None or s.total is None else min(found, left)

    def _counted(self) -> str:
        """How many trials have ended, of how many."""
        s = self.session
        return f"{s.ended} trials" if s.total is None else f"{s.ended}/{s.total} trials"

    @property
    def _paused(self) -> str:
        """How many trials rest, where any does."""
        looks = self.session.config.search.inherit is not None
        return f", {self.session.paused} {'looked at' if looks else 'paused'}" * (
            self.session.paused > 0
        )

    def trial_line(self, entry: Entry) -> str:
        """The line of an ended trial: why it failed or what it measured, whether it is another seed
        of a point, and its settings; on a terminal as much of it as there is room for."""
        room = max(LINE_WIDTH, width()) if self.status.is_terminal else None
        quality = self.session.config.quality
        told = f"{entry.state:7} {entry.costs['flops_pct']:7.1f} % flops"
        if entry.state == TrialState.FAILED:
            told = f"failed: {entry.why}"
        elif entry.state == TrialState.COMPLETE:
            value = quality.text(entry.metrics.get(quality.name), 1)
            told = f"{value:>7} {entry.costs['flops_pct']:7.1f} % flops"
        elif entry.look is not None and entry.state == TrialState.PAUSED:
            value = quality.text(entry.look.history[-1].get(quality.name), 1)
            told = f"{value:>7} look with weights of {entry.look.parent}"
        method = shortened(shown(entry.spec.method), METHOD_WIDTH)
        seed = entry.spec.seed
        repeat = f"  seed {seed}" if seed != self.session.config.search.seed else ""
        start = f"{entry.id}  {method:{self._method_width}}  "
        if entry.state == TrialState.FAILED:
            line = f"{start}{self._plan(entry, PLAN_WIDTH)}  {told}{repeat}"
            return line if room is None else shortened(line, room)
        end = f"  {told}  {_short(entry.seconds):>8}{repeat}"
        line = f"{start}{self._plan(entry, LINE_WIDTH - len(start + end))}{end}"
        left = None if room is None else room - 4 - len(line)
        return f"{line}  {in_a_line(settings_of(entry), left)}".rstrip(" …")

    @cached_property
    def _method_width(self) -> int:
        """The width of the column of methods: the longest of the space, within bounds."""
        names = self.session.ledger.space.method.values
        return min(METHOD_WIDTH, max(len(shown(str(name))) for name in names))

    def _plan(self, entry: Entry, room: int) -> str:
        """The plan of a trial in the longest form that fits the room."""
        room = min(room, PLAN_WIDTH)
        groups = by_stage(entry.spec.plan, self.session.ledger.networks.stages(entry.spec.task))
        forms = [form(groups) for form in FORMS]
        return next((f for f in forms if len(f) <= room), forms[-1][:room])

    def line(self) -> str:
        s = self.session
        best, front, share = self._facts
        passed = duration(time.monotonic() - self._started)
        times = f"this turn {passed}, ETA {duration(self.eta())}"
        if self._running and not self._reported:
            return f"{self._first()}: {self._waiting()}, {times}"
        return (
            f"{self._counted()}, {self._training()} running{self._paused}, {s.failed} failed"
            f" | best {best} | front {front} | hypervolume {share:.1f} %"
            f"{self._ahead and ' | '}{self._ahead} | {times}"
        )

    def _training(self) -> int:
        """How many trials have a worker: others of the ledger wait to be continued."""
        return self.session.running - len(self.session.ledger.interrupted())

    def _first(self) -> str:
        """What this turn is waiting for: the first trial of the search, or its next ones."""
        return "next trials" if self.session.ended else "first trial"

    def _waiting(self) -> str:
        """What keeps the first trial of this turn from reporting."""
        told = self.session.board.read() if self._running else []
        return "; ".join(told) or self.session.waits or self.session.starting

    def _bar(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        s = self.session
        passed = duration(time.monotonic() - self._started)
        row = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=s.total, completed=min(s.done, s.budget), width=BAR_WIDTH)
        told = f"{self._counted()}, this turn {passed}, about {duration(self.eta())} left"
        row.add_row(bar, Text(told))
        if not self._reported:
            return Group(row, Text(f"{self._first()}: {self._waiting()} ..."))
        best, front, share = self._facts
        failed = f", {s.failed} failed" if s.failed else ""
        running = f"{self._training()} running{self._paused}{failed}"
        below = f"{running}; best {best}, front {front}, hypervolume {share:.1f} %"
        ahead = [Text(self._ahead)] if self._ahead else []
        return Group(row, Text(below), *ahead)


def _short(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.1f} s" if seconds < 100 else duration(seconds)
