"""Short messages for people."""

import pytest

from bitfront.trainables.errors import first_line


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
