"""Claims about the pictures of a front: what they show, and that they fit where they are shown."""

import csv
import io
import math
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfront.dashboards.figures.front.chart import (
    ACCURACY_LABEL,
    COST_LABEL,
    DIM,
    EMPTY,
    chart_of,
    ticks,
)
from bitfront.dashboards.figures.front.image import front_image
from bitfront.dashboards.figures.front.interactive import front_figure, front_html
from bitfront.dashboards.figures.front.table import CSV_COLUMNS, front_csv
from bitfront.dashboards.figures.front.text import front_text
from bitfront.search.results.points import FrontPoint, Labels

POINTS = [
    FrontPoint("t-cheap", "bop", "FBBBF", 0.70, 1.0e6, 10.0, True, {"epochs": "20"}),
    FrontPoint("t-mid", "bnn++", "FBWFF", 0.80, 4.0e6, 40.0, True, {"lr": "0.1, decayed"}),
    FrontPoint("t-full", "bc", "FFFFF", 0.90, 1.0e7, 100.0, True),
    FrontPoint("t-lost", "bc", "FFBFF", 0.60, 5.0e6, 50.0, False),
]
UNMEASURED = FrontPoint("t-nan", "bc", "FFFFF", math.nan, 1.0e7, 100.0, False)


def replace_cost_pct(cost_pct: float | None) -> list[FrontPoint]:
    return [FrontPoint("t", "bc", "FB", 0.5, 1234.0, cost_pct, True), *POINTS]


# Plotly


def test_points_carry_their_method_and_dominated_ones_are_smaller_and_paler() -> None:
    traces = front_figure(POINTS, "digits").data
    assert {t.name for t in traces} == {DIM, "front", "bop", "bnn++", "bc", "full precision"}
    lost, found = [t for t in traces if t.name == "bc"]
    assert (list(lost.x), list(lost.y)) == ([50.0], [60.0])
    assert (lost.marker.color, lost.marker.symbol) == (found.marker.color, found.marker.symbol)
    assert lost.marker.size < found.marker.size
    assert lost.marker.opacity < 1
    assert lost.showlegend is False
    methods = [t for t in traces if t.name in ("bop", "bnn++")] + [found]
    assert len({t.marker.color for t in methods}) == len({t.marker.symbol for t in methods}) == 3


def test_the_claim_compares_the_front_with_the_best_network_in_full_precision() -> None:
    narrow = FrontPoint("t-narrow", "fp", "FFFFF", 0.84, 3.0e6, 30.0, True)
    chart = chart_of([*POINTS, narrow], {})
    assert chart.baseline is not None
    assert chart.baseline.point.trial == "t-full"
    # None keeps 90 % within a percentage point: the best that is cheaper and partly binary.
    assert chart.claim == "full precision 90.0 %; 80.0 % at 40 % of its FLOPs"
    close = FrontPoint("t-close", "bc", "FBFFF", 0.892, 7.0e5, 7.0, True)
    labels: Labels = {"cost_label": "bytes"}
    assert chart_of([*POINTS, close], labels).claim == (
        "full precision 90.0 %; 89.2 % at 7 % of its bytes"
    )


def test_a_claim_about_errors_looks_down() -> None:
    errors = [
        FrontPoint("t1", "fp", "FF", 0.50, 100.0, None, True),
        FrontPoint("t2", "bc", "FB", 0.504, 30.0, None, True),
        FrontPoint("t3", "bc", "BB", 0.9, 10.0, None, True),
    ]
    labels: Labels = {"maximize": False, "share": False}
    assert chart_of(errors, labels).claim == "full precision 0.5; 0.504 at 30 % of its FLOPs"


def test_nothing_is_claimed_without_a_baseline_or_beside_it_alone() -> None:
    assert chart_of(POINTS[:2], {}).claim == chart_of([POINTS[2]], {}).claim == ""
    names = {t.name for t in front_figure(POINTS[:2], "digits").data}
    assert "full precision" not in names


def test_costs_of_more_than_a_decade_have_an_axis_that_switches() -> None:
    cheap = FrontPoint("t-least", "bop", "BBBBB", 0.5, 2.0e5, 2.0, True)
    layout = front_figure([*POINTS, cheap], "digits").layout
    assert layout.xaxis.type == "log"
    low, high = (10**end for end in layout.xaxis.range)
    assert (low < 2.0, high > 100.0) == (True, True)
    assert list(layout.xaxis.ticktext) == ["2", "5", "10", "20", "50", "100"]
    (menu,) = layout.updatemenus
    assert [b.args[0]["xaxis.type"] for b in menu.buttons] == ["log", "linear"]
    decade = front_figure(POINTS, "digits").layout
    assert (decade.xaxis.type, decade.updatemenus) == (None, ())
    free = front_figure([*POINTS, FrontPoint("t", "bc", "B", 0.5, 0.0, 0.0, True)], "digits")
    assert free.layout.xaxis.type is None


def test_a_budget_is_marked_where_it_is_on_either_axis() -> None:
    cheap = FrontPoint("t-least", "bop", "BBBBB", 0.5, 2.0e5, 2.0, True)
    shapes = front_figure([*POINTS, cheap], "digits", budgets=[("at most 30", 30.0)]).layout.shapes
    assert [(s.x0, s.label.text) for s in shapes if s.label.text] == [(30.0, "at most 30")]


@given(st.floats(1e-6, 1e12), st.floats(11, 1e14))
def test_a_logarithmic_axis_has_a_few_ticks_within_its_range(low: float, factor: float) -> None:
    found = ticks(low, low * factor)
    values = [value for value, _ in found]
    assert 1 <= len(found) <= 10
    assert all(low <= value <= low * factor for value in values)
    assert values == sorted(set(values))
    assert len({text for _, text in found}) == len(found)


def test_seeds_have_bars_of_their_spread() -> None:
    several = FrontPoint("t-two", "bop", "FBBBF", 0.75, 2e6, 20.0, True, seeds=2, spread=0.01)
    traces = front_figure([*POINTS, several], "digits").data
    (bop,) = [t for t in traces if t.name == "bop"]
    assert list(bop.error_y.array) == [0.0, 1.0]
    (other,) = [t for t in traces if t.name == "bnn++"]
    assert other.error_y.array is None


def test_sixty_methods_are_told_apart_by_colour_and_symbol() -> None:
    points = [FrontPoint(f"t{i}", f"m{i}", "F", i / 100, i, i, True) for i in range(60)]
    markers = [t.marker for t in front_figure(points, "many").data if t.mode == "markers"]
    assert len({(marker.color, marker.symbol) for marker in markers}) == 60


def test_a_method_keeps_its_look_when_another_leaves_the_front() -> None:
    def look(points: list[FrontPoint], method: str) -> tuple[str, str]:
        (trace,) = [t for t in front_figure(points, "digits").data if t.name == method]
        return trace.marker.color, trace.marker.symbol

    fallen = FrontPoint("t-full", "bc", "FFFFF", 0.50, 1.0e7, 100.0, False)
    later = [*POINTS[:2], fallen, POINTS[3]]
    assert look(later, "bop") == look(POINTS, "bop")


def test_front_is_a_staircase_that_never_promises_more_than_was_measured() -> None:
    (line,) = [t for t in front_figure(POINTS, "digits").data if t.mode == "lines"]
    corners = list(zip(line.x, line.y, strict=True))
    assert corners[:-1] == [(10, 70), (40, 70), (40, 80), (100, 80), (100, 90)]
    assert corners[-1][0] > 100
    assert corners[-1][1] == 90


def test_a_front_over_more_objectives_still_draws_a_rising_line() -> None:
    third = FrontPoint("t-small", "bc", "FFBFF", 0.60, 5.0e6, 50.0, True)
    (line,) = [t for t in front_figure([*POINTS, third], "digits").data if t.mode == "lines"]
    assert list(line.y) == sorted(line.y)
    assert 60.0 not in line.y


def test_hover_shows_trial_method_plan_accuracy_costs_and_extras() -> None:
    texts = [t for trace in front_figure(POINTS, "digits").data for t in trace.hovertext or ()]
    (hover,) = [text for text in texts if "t-mid" in text]
    for word in ("bnn++", "FBWFF", "80.00", "4,000,000", "40.00", "lr: 0.1, decayed"):
        assert word in hover
    assert len(texts) == len(POINTS)


def test_hover_breaks_a_long_plan_into_lines_and_loses_no_letter() -> None:
    plan = "FWBA" * 40
    point = FrontPoint("t", "bc", plan, 0.5, 1, 1, True)
    (trace,) = [t for t in front_figure([point], "long").data if t.mode == "markers"]
    lines = trace.hovertext[0].split("<br>")
    assert max(map(len, lines)) <= 44
    assert plan in "".join(lines)


def test_hover_shows_markup_in_names_as_text() -> None:
    point = FrontPoint("<b>t", "m<i>", "F", 0.5, 1, 1, True, {"note": "a<b & c"})
    (trace,) = [t for t in front_figure([point], "<title>").data if t.mode == "markers"]
    assert "&lt;b&gt;t" in trace.hovertext[0]
    assert "a&lt;b &amp; c" in trace.hovertext[0]


def test_axes_name_the_convention_and_fonts_are_readable_on_a_phone() -> None:
    layout = front_figure(POINTS, "digits").layout
    assert layout.xaxis.title.text == COST_LABEL
    assert layout.yaxis.title.text == ACCURACY_LABEL
    assert layout.font.size >= 12
    assert layout.hoverlabel.font.size >= 12
    assert layout.legend.orientation == "h"
    assert layout.legend.y < 0
    assert layout.xaxis.automargin
    assert layout.yaxis.automargin


def test_one_unknown_percentage_moves_the_whole_axis_to_counts() -> None:
    percent = front_figure(replace_cost_pct(50.0), "digits")
    counts = front_figure(replace_cost_pct(None), "digits")
    named = [t for t in percent.data if t.name != DIM]
    assert max(x for trace in named for x in trace.x) < 200
    named = [t for t in counts.data if t.name != DIM]
    assert min(x for trace in named for x in trace.x) == 1234.0
    assert counts.layout.xaxis.title.text == "FLOPs, MixBin convention"


def test_a_distant_reference_does_not_squash_the_front() -> None:
    without = front_figure(POINTS, "digits").layout
    distant = front_figure(POINTS, "digits", reference=(0.0, 500.0)).layout
    near = front_figure(POINTS, "digits", reference=(0.61, 101.0)).layout
    assert without.yaxis.range == distant.yaxis.range == near.yaxis.range
    assert [s for s in distant.shapes if s.line.dash == "dot"] == []
    dotted = {(s.x0, s.y0) for s in near.shapes if s.line.dash == "dot"}
    assert dotted == {(101.0, 0), (0, 61.0)}
    assert [s.name for s in near.shapes if s.showlegend] == ["reference"]


def test_points_without_a_finite_accuracy_are_not_drawn() -> None:
    assert front_figure([*POINTS, UNMEASURED], "t") == front_figure(POINTS, "t")
    assert front_text([*POINTS, UNMEASURED]) == front_text(POINTS)


# HTML


def test_page_is_self_contained() -> None:
    page = front_html(POINTS, "digits <front>", cost_label="bops")
    tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page[:2000] + page[-20000:])
    # Not any text: plotly 6 has the address of icons of maps, which it fetches for maps only.
    assert re.search(r'<(?:script|link|img|iframe)\b[^>]{0,300}src="http', page) is None
    assert not any("http" in tag for tag in tags)
    assert "Plotly.react" in page
    assert len(page) > 1_000_000
    assert "<title>digits &lt;front&gt;</title>" in page
    assert 'name="viewport"' in page
    assert page.startswith("<!doctype html>")
    for word in ("t-mid", "FBWFF", "bops"):
        assert word in page


def test_page_cannot_be_broken_by_a_name() -> None:
    evil = "</script><script>alert(1)</script>"
    page = front_html([FrontPoint(evil, evil, evil, 0.5, 1, 1, True, {evil: evil})], evil)
    assert "<script>alert(1)" not in page


def test_the_same_points_give_the_same_page() -> None:
    assert front_html(POINTS, "digits") == front_html(POINTS[::-1], "digits")


# PNG


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@pytest.mark.parametrize(
    "points", [POINTS, POINTS[:1], replace_cost_pct(None), [UNMEASURED], []], ids=len
)
def test_png_is_a_picture_of_800_by_560_at_double_density(
    points: list[FrontPoint], tmp_path: Path
) -> None:
    path = front_image(points, "digits", tmp_path / "front.png", reference=(0.61, 50.0))
    assert path == tmp_path / "front.png"
    assert png_size(path) == (1600, 1120)


def test_png_takes_a_dollar_sign_literally(tmp_path: Path) -> None:
    point = FrontPoint("t", "a$^", "F", 0.5, 1, 1, True)
    assert png_size(front_image([point], "cost in $_{", tmp_path / "f.png", cost_label="$^$"))


def test_png_does_not_start_pyplot(tmp_path: Path) -> None:
    code = (
        "import sys; from bitfront.dashboards.figures.front.image import front_image; "
        f"front_image([], 't', {str(tmp_path / 'f.png')!r}); "
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# CSV

texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
extra_names = texts.filter(lambda name: name not in (*CSV_COLUMNS, "accuracy_spread"))
any_point = st.builds(
    FrontPoint,
    trial=texts,
    method=texts,
    plan=texts,
    accuracy=numbers,
    cost=numbers,
    cost_pct=st.none() | numbers,
    on_front=st.booleans(),
    extra=st.dictionaries(extra_names, texts.filter(bool), max_size=3),
    spread=st.none() | numbers,
)


@given(st.lists(any_point, max_size=5))
def test_csv_round_trips(points: list[FrontPoint]) -> None:
    text = front_csv(points)
    extras = sorted({name for point in points for name in point.extra})
    table = csv.DictReader(io.StringIO(text, newline=""))
    read = [
        FrontPoint(
            trial=row["trial"],
            method=row["method"],
            plan=row["plan"],
            accuracy=float(row["accuracy"]),
            cost=float(row["cost"]),
            cost_pct=float(row["cost_pct"]) if row.get("cost_pct") else None,
            on_front=row["on_front"] == "True",
            extra={name: row[name] for name in extras if row[name]},
            spread=float(row["accuracy_spread"]) if row.get("accuracy_spread") else None,
        )
        for row in table
    ]
    assert read == points
    known = [c for c in CSV_COLUMNS if any(getattr(p, c) is not None for p in points)]
    known = known if points else [c for c in CSV_COLUMNS if c not in ("spread", "cost_pct")]
    heads = ["accuracy_spread" if name == "spread" else name for name in known]
    assert table.fieldnames == [*heads, *extras]


def test_csv_starts_with_the_documented_header() -> None:
    header, first, *_ = front_csv(POINTS).splitlines()
    assert header == "trial,method,plan,accuracy,cost,cost_pct,on_front,epochs,lr"
    assert first == "t-cheap,bop,FBBBF,0.7,1000000.0,10.0,True,20,"


def test_csv_has_the_spread_in_the_unit_of_the_quality() -> None:
    points = [FrontPoint("t", "bc", "F", 0.91, 1, 1, True, seeds=2, spread=0.004)]
    (row,) = csv.DictReader(io.StringIO(front_csv(points, "auc")))
    assert (row["auc"], row["auc_spread"]) == ("0.91", "0.004")


def test_csv_refuses_an_extra_that_repeats_a_column() -> None:
    with pytest.raises(ValueError, match="cost"):
        front_csv([FrontPoint("t", "bc", "F", 0.5, 1, 1, True, {"cost": "2"})])


# Terminal

plottable = st.builds(
    FrontPoint,
    trial=st.just("t"),
    method=st.sampled_from(["bc", "bop"]),
    plan=st.just("F"),
    accuracy=st.floats(0, 1) | st.just(math.nan),
    cost=st.floats(0, 1e15),
    cost_pct=st.none() | st.floats(0, 200),
    on_front=st.booleans(),
)


@given(st.lists(plottable, max_size=20), st.integers(1, 120), st.integers(1, 40))
@settings(deadline=None)
def test_text_never_exceeds_its_width_and_height(
    points: list[FrontPoint], width: int, height: int
) -> None:
    lines = front_text(points, width=width, height=height).split("\n")
    assert max(map(len, lines)) <= width
    assert len(lines) <= height


def test_text_puts_the_best_at_the_top_and_the_cheapest_at_the_left() -> None:
    text = front_text(POINTS, width=60, height=16)
    head, *rows = text.split("\n")
    assert head.startswith(ACCURACY_LABEL)
    assert len([head, *rows]) == 16
    plot = [row.partition("│")[2] for row in rows if "│" in row]
    marks = {
        (r, c): mark for r, row in enumerate(plot) for c, mark in enumerate(row) if mark != " "
    }
    assert sorted(marks.values()) == ["·", "●", "●", "●"]
    front = sorted(place for place, mark in marks.items() if mark == "●")
    assert front[0][0] == 0
    assert front[-1][1] == 0
    assert [c for _, c in front] == sorted((c for _, c in front), reverse=True)
    assert rows[-1].strip() == COST_LABEL
    assert "90.0" in rows[0]
    assert "10.0" in rows[-2]
    assert "100.0" in rows[-2]


def test_text_of_nothing_says_so() -> None:
    assert front_text([]) == EMPTY
    assert front_text([UNMEASURED]) == EMPTY


def test_the_terminal_picture_needs_no_plotting_library() -> None:
    code = (
        "import sys; from bitfront.dashboards.figures.front.text import front_text\n"
        "front_text([])\n"
        "print(*{'plotly', 'matplotlib', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
