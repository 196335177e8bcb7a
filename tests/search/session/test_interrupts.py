"""Ctrl-C, SIGTERM and closed terminals, at moments when an exception alone would not do."""

import io
import os
import pty
import signal
import subprocess
import sys
import threading

import pytest

from bitfront.search.cluster import head
from bitfront.search.session import interrupts
from bitfront.search.session.interrupts import (
    SIGNALS,
    asked_to_end,
    break_off,
    ending_gently,
    handlers_restored,
    held_back,
    obey,
)
from bitfront.terminal.status_line import StatusLine

EACH = pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)


@pytest.fixture(autouse=True)
def handlers():
    """As in a terminal, whatever the tests were started from; and as they were."""
    with handlers_restored():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        yield


def now():
    return [signal.getsignal(number) for number in SIGNALS]


@EACH
def test_each_of_the_signals_interrupts(number):
    before = now()
    with pytest.raises(KeyboardInterrupt), ending_gently():
        signal.raise_signal(number)
    assert now() == before


@EACH
@pytest.mark.filterwarnings("error")
def test_what_python_drops_is_raised_again_and_shown_to_nobody(number):
    class Struck:
        def __del__(self):
            signal.raise_signal(number)

    with ending_gently():
        obey()
        struck = Struck()
        del struck  # Python has no one to give the exception to
        with pytest.raises(KeyboardInterrupt):
            obey()
    with ending_gently():
        obey()  # a new search, which nobody asked to end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_what_was_ignored_when_we_were_started_interrupts(number):
    """As shells ignore ctrl-C for what runs in the background."""
    signal.signal(number, signal.SIG_IGN)
    with pytest.raises(KeyboardInterrupt), ending_gently():
        signal.raise_signal(number)
    assert signal.getsignal(number) is signal.SIG_IGN


def test_what_nohup_has_started_outlives_its_terminal():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with ending_gently():
        signal.raise_signal(signal.SIGHUP)
        assert not asked_to_end()


@EACH
def test_a_signal_that_comes_twice_at_once_is_one(number):
    """`timeout` sends to its child and to the group of its child."""
    with ending_gently():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        signal.raise_signal(number)
        assert asked_to_end()


@EACH
def test_another_request_is_heard(number, monkeypatch):
    monkeypatch.setattr(interrupts, "ECHO_SECONDS", 0)
    with ending_gently():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)


def test_a_handler_of_tunes_hears_every_signal_once():
    heard = []
    with ending_gently():
        signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        assert heard == [signal.SIGINT]


def test_verbs_within_verbs_have_the_same_signals():
    with ending_gently():
        before = now()
        with ending_gently():
            assert now() == before
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert now() == before
        with pytest.raises(KeyboardInterrupt):
            obey()


def test_another_thread_ends_what_the_main_one_waits_for():
    class LostError(KeyboardInterrupt):
        pass

    def wait():
        thread.start()
        threading.Event().wait(60)

    thread = threading.Thread(target=break_off, args=(LostError(),))
    with pytest.raises(LostError), ending_gently():
        wait()
    thread.join()
    assert not asked_to_end()


def test_nobody_is_broken_off_who_does_not_expect_it():
    assert not break_off(KeyboardInterrupt())


TALKER = """
import sys, time
from bitfront.search.session.interrupts import ending_gently

try:
    with ending_gently():
        print("listening", flush=True)
        time.sleep(300)
except KeyboardInterrupt:
    print("bye", flush=True)
    print("bye", file=sys.stderr, flush=True)
    sys.exit(130)
"""


def test_a_closed_terminal_is_no_error():
    """What is written to it afterwards would be one."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", sys.executable, "-c", TALKER],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    while b"listening" not in said:
        said += os.read(ours, 1000)
    os.close(ours)
    assert process.wait(60) == 130


def held(*numbers):
    """Which of them were sent before there was an interrupt."""
    sent = []
    try:
        with held_back():
            for number in numbers:
                signal.raise_signal(number)
                sent.append(number)
    except KeyboardInterrupt:
        return sent
    pytest.fail("no interrupt")


@EACH
def test_a_signal_waits_for_what_must_not_be_interrupted(number):
    with ending_gently():
        before = now()
        assert held(number) == [number]
        assert now() == before


@EACH
def test_the_second_signal_does_not_wait(number, monkeypatch):
    monkeypatch.setattr(interrupts, "ECHO_SECONDS", 0)
    with ending_gently():
        assert held(signal.SIGTERM, number) == [signal.SIGTERM]


def test_the_echo_of_a_signal_waits_too():
    with ending_gently():
        assert held(signal.SIGTERM, signal.SIGTERM) == [signal.SIGTERM, signal.SIGTERM]


def test_what_is_ignored_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held_back():
        signal.raise_signal(signal.SIGINT)


def test_other_threads_have_no_signals():
    """`train` may be called from one."""
    before, seen = now(), []

    def work():
        with ending_gently(), held_back():
            seen.append(now())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def _line():
    line = StatusLine(out=io.StringIO())
    return lambda: line.wait("reading"), line.close


def _head():
    return lambda: head.watch(lambda: None), head.unwatch


@pytest.mark.parametrize("threaded", [_line, _head], ids=["status line", "head"])
def test_a_thread_that_is_started_while_a_signal_comes_can_be_ended(threaded, monkeypatch):
    """Python cannot join a thread whose start was interrupted."""
    start = threading.Thread.start

    def struck(thread):
        signal.raise_signal(signal.SIGTERM)
        start(thread)

    begin, end = threaded()
    with monkeypatch.context() as patch, ending_gently():
        patch.setattr(threading.Thread, "start", struck)
        with pytest.raises(KeyboardInterrupt):
            begin()
    end()
    assert not {"head", "status line"} & {thread.name for thread in threading.enumerate()}
