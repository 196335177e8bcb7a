"""Ctrl-C and SIGTERM, at moments when an exception alone would not do."""

import signal
import threading

import pytest

from search.interrupts import ending_gently, handlers_restored, held_back, obey

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)


@pytest.fixture(autouse=True)
def handlers():
    """As in a terminal, whatever the tests were started from; and as they were."""
    with handlers_restored():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        yield


def now():
    return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)


@BOTH
def test_both_signals_interrupt(number):
    before = now()
    with pytest.raises(KeyboardInterrupt), ending_gently():
        signal.raise_signal(number)
    assert now() == before


@BOTH
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


def test_sigterm_ends_a_search_that_ignores_ctrl_c():
    """As shells start what runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ending_gently():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


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


@BOTH
def test_a_signal_waits_for_what_must_not_be_interrupted(number):
    with ending_gently():
        before = now()
        assert held(number) == [number]
        assert now() == before


@BOTH
def test_the_second_signal_does_not_wait(number):
    with ending_gently():
        assert held(signal.SIGTERM, number) == [signal.SIGTERM]


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
