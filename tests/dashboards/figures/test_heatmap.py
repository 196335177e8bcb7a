"""The heat map shows every finished trial where it belongs, and says so where there is none."""

import csv
import io

import pytest

from bitfront.dashboards.figures.trials.heatmap import (
    Cell,
    heat_map_csv,
    heat_map_figure,
    heat_map_html,
    heat_map_png,
)

PARTS = ["blocks.0", "blocks.1", "blocks.2"]
CELLS = [
    Cell("bnn", "blocks.0", 0.5),
    Cell("bnn", "blocks.0", 0.7),
    Cell("bnn", "blocks.2", 0.25),
    Cell("bc", "blocks.1", 1.0),
]


def test_a_cell_is_the_mean_of_its_trials_in_the_order_of_the_network():
    trace = heat_map_figure(CELLS, PARTS, "title", "block").data[0]
    assert list(trace.x) == PARTS
    assert list(trace.y) == ["bc", "bnn"]
    assert [list(row) for row in trace.z] == [
        [None, 100.0, None],
        [pytest.approx(60.0), None, 25.0],
    ]


def test_the_csv_has_the_same_numbers_as_fractions():
    rows = list(csv.DictReader(io.StringIO(heat_map_csv(CELLS, PARTS))))
    assert rows[0] == {"method": "bc", "blocks.0": "", "blocks.1": "1", "blocks.2": ""}
    assert rows[1] == {"method": "bnn", "blocks.0": "0.6", "blocks.1": "", "blocks.2": "0.25"}


@pytest.mark.parametrize("cells", [CELLS, []])
def test_page_and_picture_are_made_with_and_without_trials(cells, tmp_path):
    page = heat_map_html(cells, PARTS, "<b>", "block that is binary")
    assert "&lt;b&gt;" in page
    path = heat_map_png(cells, PARTS, "title", "block", tmp_path / "h.png")
    assert path.read_bytes()[:4] == b"\x89PNG"
