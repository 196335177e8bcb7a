"""What a person sees while a search starts, runs and ends, with a terminal and without."""

import io
import os
import re
import select
import signal
import time
from functools import partial
from typing import Any

import pytest

from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.session.eta import START_SECONDS, Eta
from bitfront.search.session.interrupts import acknowledged, ending_gently, held_back
from bitfront.search.session.session import Session
from bitfront.terminal import status_line
from bitfront.terminal.progress import Progress
from bitfront.terminal.status_line import StatusLine, silence_after
from bitfront.trainables.task import TrialSpec

PATIENCE = 30
QUIET = partial(Progress, quiet=True)


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_a_wait_is_told_at_once_and_again_while_it_lasts(monkeypatch):
    monkeypatch.setattr(status_line, "SHORTEST_SILENCE", 0.05)
    out = io.StringIO()
    with StatusLine(out=out) as line:
        line.wait("starting Ray")
        assert out.getvalue().startswith("starting Ray ...\n")
        until(lambda: out.getvalue().count("starting Ray ...") >= 3)
        line.wait("first trial")
        until(lambda: out.getvalue().count("first trial ...") >= 2)
    said = out.getvalue()
    assert re.search(r"first trial .*starting Ray", said, re.DOTALL) is None


def test_a_log_is_never_silent_for_long_and_never_full_of_it():
    assert silence_after(0) < 2
    assert silence_after(120) < 2
    assert silence_after(3600) == pytest.approx(36)
    assert silence_after(1e6) == 60


def test_quiet_is_quiet():
    out = io.StringIO()
    with StatusLine(quiet=True, out=out) as line:
        line.wait("starting Ray")
        line.say("something")
        line.interrupted()
    assert out.getvalue() == ""


class Terminal:
    """A pseudo-terminal, and what was shown on it."""

    def __init__(self):
        self.screen, keys = os.openpty()
        self.out = os.fdopen(keys, "w")
        self.shown = ""

    def shows(self, text):
        while select.select([self.screen], [], [], 0)[0]:
            self.shown += os.read(self.screen, 65536).decode(errors="replace")
        return text in self.shown

    def close(self):
        self.out.close()
        os.close(self.screen)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    made = Terminal()
    yield made
    made.close()


def test_on_a_terminal_a_line_moves_below_what_has_been_said(terminal):
    with StatusLine(out=terminal.out) as line:
        line.wait("starting Ray")
        until(lambda: terminal.shows("starting Ray ..."))
        line.say("a [trial] ended")
        until(lambda: terminal.shows("a [trial] ended"))
        line.wait("first trial")
        until(lambda: terminal.shows("first trial ..."))
    assert terminal.shown.count("starting Ray ...\r\n") == 0  # it leaves no line behind


def test_trials_end_as_lines_above_a_bar(terminal, make_space, tmp_path):
    config, space = make_space()
    with StatusLine(out=terminal.out) as line:
        session = Session(
            config, space, SearchFolder(tmp_path), None, progress=partial(Progress, line=line)
        )
        session.progress.start()
        until(lambda: terminal.shows("0/6 trials"))
        entry = session.ask()
        row = {"epoch": 3, "val_accuracy": 0.9, "val_loss": 1.0, "seconds": 0.1}
        session.finish(entry.id, {**row, "history": [row]})
        until(lambda: terminal.shows("1/6 trials") and terminal.shows("90.0 %"))
        assert terminal.shows(entry.id)
        session.progress.stop()


def test_without_a_terminal_every_trial_has_a_line(make_space, tmp_path):
    out = io.StringIO()
    config, space = make_space()
    session = Session(
        config, space, SearchFolder(tmp_path), None, progress=partial(Progress, out=out)
    )
    entries = [session.ask() for _ in range(6)]
    for entry in entries[:5]:
        row = {"epoch": 3, "val_accuracy": 0.9, "val_loss": 1.0}
        session.finish(entry.id, {**row, "history": [row]})
    session.fail(entries[5].id, "lost worker", "no word of why")
    lines = out.getvalue().splitlines()
    for entry in entries:
        (told,) = [line for line in lines if line.startswith(entry.id)]
        assert entry.spec.method in told
    assert "failed: lost worker" in out.getvalue()


@pytest.mark.parametrize("state", ["complete", "stopped", "failed"])
@pytest.mark.parametrize("layers", [4, 19, 60, 300])
def test_on_a_terminal_the_line_of_a_trial_fits(make_space, tmp_path, monkeypatch, state, layers):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(StatusLine, "is_terminal", True)
    config, space = make_space()
    session: Any = Session(config, space, SearchFolder(tmp_path), None, progress=QUIET)
    spec = TrialSpec(task=space.task, method="edge-popup", plan=("FBWA" * layers)[:layers])
    entry = Entry("0123abcd", 1, state, spec, {"flops_pct": 100.0}, failure="lost worker")
    entry.metrics, entry.started, entry.ended = {"val_accuracy": 1.0}, 0.0, 99 * 3600.0
    told = session.progress.trial_line(entry)
    assert len(told) <= 80
    assert told.startswith("0123abcd  edge-popup  ")


def test_the_line_of_a_trial_tells_repeats_and_settings(make_space, tmp_path):
    config, space = make_space()
    session: Any = Session(config, space, SearchFolder(tmp_path), None, progress=QUIET)
    line = session.progress.trial_line
    spec = TrialSpec(task=space.task, method="bnn", plan="FBFB")
    drawn = {"model.width": 16, "optimizer.lr": 0.01}
    entry = Entry("0123abcd", 1, "complete", spec, {"flops_pct": 50.0}, drawn=drawn)
    entry.metrics, entry.started, entry.ended = {"val_accuracy": 0.9}, 0.0, 2.0
    assert "seed" not in line(entry)
    assert line(entry).endswith("2.0 s  width=16 lr=0.01")
    entry.stored = spec.model_copy(update={"seed": 3})
    assert "2.0 s  seed 3  width=16" in line(entry)


def test_in_a_pipe_the_line_of_a_trial_has_all_settings(make_space, tmp_path, monkeypatch):
    config, space = make_space()
    session: Any = Session(config, space, SearchFolder(tmp_path), None, progress=QUIET)
    spec = TrialSpec(task=space.task, method="bnn", plan="FBFB")
    drawn = {f"optimizer.a_long_name_{i}": i for i in range(9)}
    entry = Entry("0123abcd", 1, "complete", spec, {"flops_pct": 50.0}, drawn=drawn)
    entry.metrics, entry.started, entry.ended = {"val_accuracy": 0.9}, 0.0, 2.0
    assert "a_long_name_8=8" in session.progress.trial_line(entry)
    monkeypatch.setattr(StatusLine, "is_terminal", True)
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert columns - 20 < len(session.progress.trial_line(entry)) <= columns
    failed = Entry("0123abcd", 1, "failed", spec, {"flops_pct": 50.0}, failure="error")
    failed.message = "KeyError: " + "x " * 80
    monkeypatch.setattr(StatusLine, "is_terminal", False)
    assert session.progress.trial_line(failed).count("x") == 80


def test_the_line_of_a_failed_trial_has_what_was_raised(make_space, tmp_path):
    config, space = make_space()
    session: Any = Session(config, space, SearchFolder(tmp_path), None, progress=QUIET)
    spec = TrialSpec(task=space.task, method="bnn", plan="FBFB")
    entry = Entry("0123abcd", 1, "failed", spec, {"flops_pct": 50.0}, failure="error")
    entry.message = "KeyError: 'acc_bits'\nsecond line"
    assert session.progress.trial_line(entry).endswith("failed: KeyError: 'acc_bits'")


def test_the_eta_begins_with_the_estimate_and_does_not_count_the_start():
    """Forty trials of two seconds, two at a time; the workers need 13 s to start."""
    eta = Eta()
    eta.expect(2.0, slots=2)
    assert eta.seconds(now=0, started=0, done=0, budget=40) == START_SECONDS + 40
    assert eta.seconds(now=60, started=0, done=0, budget=40) == 40  # the start takes longer
    eta.report(now=13.0, done=0.1)
    eta.report(now=14.0, done=0.9)
    after_one = eta.seconds(now=15.0, started=0, done=1.9, budget=40)
    assert after_one == pytest.approx(38.1, rel=0.1)


def test_the_eta_follows_what_is_measured_where_the_estimate_was_wrong():
    eta = Eta()
    eta.expect(2.0, slots=2)
    eta.report(now=13.0, done=0.0)
    left = eta.seconds(now=13.0 + 120, started=0, done=20, budget=40)  # 6 s a trial
    assert left == pytest.approx(20 * 6, rel=0.15)
    unknown = Eta()
    assert unknown.seconds(now=1, started=0, done=0, budget=40) is None
    unknown.report(now=5.0, done=1.0)
    assert unknown.seconds(now=5, started=0, done=1.0, budget=40) is None
    assert unknown.seconds(now=15, started=0, done=11.0, budget=40) == pytest.approx(29)
    assert unknown.seconds(now=50, started=0, done=40.0, budget=40) == 0


def test_a_first_epoch_tells_how_long_a_trial_takes(make_space, tmp_path):
    """Where nobody could say before: on GPUs, on data that take long to read."""
    config, space = make_space()
    session: Any = Session(config, space, SearchFolder(tmp_path), None, progress=QUIET)
    assert session.progress.eta() is None
    entry = session.ask()
    session.report(entry.id, {"epoch": 1, "val_accuracy": 0.5, "seconds": 10.0})
    assert session.done == pytest.approx(1 / 3)
    assert session.progress.eta() == pytest.approx(30 * (6 - 1 / 3), rel=0.05)


def test_a_ctrl_c_is_answered_while_it_is_held_back():
    """As while Ray starts."""
    answered = []

    def start_ray():
        with held_back():
            signal.raise_signal(signal.SIGTERM)
            until(lambda: answered)
            signal.raise_signal(signal.SIGTERM)  # the second one does not wait

    with (
        ending_gently(),
        acknowledged(lambda: answered.append(True)),
        pytest.raises(KeyboardInterrupt),
    ):
        start_ray()
    assert answered == [True]


def test_a_ctrl_c_is_answered_while_python_cannot_call_its_handler():
    """A thread hears of it, wherever the main thread is: here the handler of the signal itself
    does not return before."""
    answered = []

    def deaf(number, frame):
        until(lambda: answered)

    former = signal.signal(signal.SIGTERM, deaf)
    try:
        with acknowledged(lambda: answered.append(True)):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert answered == [True]
