"""The numbers at the top of the report and of the live page."""

import pytest

from bitfront.dashboards.pages.tiles import tiles
from bitfront.search.durations import duration

pytestmark = pytest.mark.fast


def test_the_tiles_of_a_page_write_times_as_the_terminal_does(make_view):
    assert tiles(make_view(seconds=5000.0))["time in training"] == duration(5000.0) == "1 h 23 min"
