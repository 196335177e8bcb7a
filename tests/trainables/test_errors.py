"""Short messages for people."""

import pytest

from bitfront.trainables.errors import did_you_mean, first_line


def test_a_word_is_recognised_whatever_its_case():
    known = ["tpe", "random", "nsga2", "A"]
    assert did_you_mean("TPE", known) == "did you mean 'tpe'?"
    assert did_you_mean("a", known) == "did you mean 'A'?"


@pytest.mark.parametrize(
    ("error", "line", "typed"),
    [
        (ValueError("one\ntwo"), "one", "ValueError: one"),
        (RuntimeError("\n\n  late start\n"), "late start", "RuntimeError: late start"),
        (KeyError(), "KeyError", "KeyError"),
        (OSError("\n"), "OSError", "OSError"),
    ],
)
def test_the_first_line_of_an_error(error, line, typed):
    assert first_line(error) == line
    assert first_line(error, typed=True) == typed
