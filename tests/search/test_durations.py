"""Times as people read them."""

import pytest

from bitfront.search.durations import duration

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0.4, "0 s"), (59.6, "1 min 00 s"), (119, "1 min 59 s"), (7290, "2 h 01 min")],
)
def test_a_time_is_written_in_its_two_largest_units(seconds, text):
    assert duration(seconds) == text
