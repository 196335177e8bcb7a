"""Claims about the figures of a whole search: what they show, which way is better, what is left
out."""

import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from bitfront.dashboards.figures.front.interactive import front_figure
from bitfront.dashboards.figures.front.overlay import Overlay, overlay_figure
from bitfront.dashboards.figures.networks.layers import layers_figure, layers_image, short_names
from bitfront.dashboards.figures.networks.quantizer import quantizer_image
from bitfront.dashboards.figures.style import LEVEL_COLOURS
from bitfront.dashboards.figures.trials.coordinates import MOST_LINES, coordinates_figure
from bitfront.dashboards.figures.trials.curves import curves_figure
from bitfront.dashboards.figures.trials.failures import MEANINGS, failures_figure, reasons
from bitfront.dashboards.figures.trials.hypervolume import hypervolume_figure, hypervolume_image
from bitfront.dashboards.figures.trials.importance import (
    MOST_BARS,
    importance_figure,
    importance_image,
)
from bitfront.dashboards.figures.trials.methods import best_points, methods_figure
from bitfront.dashboards.figures.trials.rungs import rungs_figure
from bitfront.dashboards.pages.comparison import comparison_html
from bitfront.dashboards.pages.page import placed
from bitfront.dashboards.pages.report import report_html
from bitfront.search.results.points import FrontPoint
from bitfront.search.results.view import Axis, Layer

ERROR = Axis("val_rmse", "validation error in standard deviations", False, False, "rmse")


# The front


def test_a_quality_that_is_minimised_has_a_falling_front_in_its_own_unit():
    points = [
        FrontPoint("a", "m", "BB", 0.9, 10, 10, True),
        FrontPoint("b", "m", "FB", 0.5, 50, 50, True),
        FrontPoint("c", "m", "BF", 0.95, 55, 55, False),
    ]
    figure = front_figure(points, "t", accuracy_label=ERROR.label, share=False, maximize=False)
    (line,) = [t for t in figure.data if t.mode == "lines"]
    assert list(line.y)[:3] == [0.9, 0.9, 0.5]
    assert figure.layout.yaxis.title.text == ERROR.label
    assert "%" not in figure.layout.yaxis.title.text


def test_a_budget_is_marked_where_it_is_in_view_and_stretches_nothing(make_view):
    view = make_view()
    marked = front_figure(view.points, "", **view.labels)
    assert [s.x0 for s in marked.layout.shapes] == [60.0]
    assert [s.label.text for s in marked.layout.shapes] == ["limit: flops_pct 60"]
    far = front_figure(view.points, "", **{**view.labels, "budgets": [("far", 5000.0)]})
    assert not far.layout.shapes
    assert far.layout.xaxis.range == marked.layout.xaxis.range


def test_every_point_carries_its_trial_for_a_click(make_view):
    view = make_view()
    figures = [
        front_figure(view.points, "", **view.labels),
        methods_figure(view, ""),
        curves_figure(view, ""),
        rungs_figure(view, ""),
        coordinates_figure(view, ""),
    ]
    for figure in figures:
        known = {i for t in figure.data for i in (t.customdata if t.customdata is not None else ())}
        assert known - {None} <= set(view.by_id)
        assert known & set(view.front)


# Layers


def test_layers_of_the_front_are_drawn_on_their_stages(make_view):
    view = make_view()
    heat = layers_figure(view, "").data[0]
    assert [list(row) for row in heat.text] == [list(view.by_id[k].plan) for k in view.front]
    figure = layers_figure(view, "")
    assert [a.text for a in figure.layout.annotations] == ["stage1", "stage2"]
    assert [s.x0 for s in figure.layout.shapes] == [1.5]
    assert list(figure.layout.xaxis.ticktext) == ["0.0", "0.1", "1.0", "1.1"]
    assert {t.name for t in figure.data[1:]} == {
        "F full precision",
        "B binary weights and activations",
    }


def test_names_lose_what_all_have_in_common_and_stay_different():
    layers = [Layer(name, "", "") for name in ("a.0.x.conv", "a.1.x.conv", "a.1.y.conv")]
    assert short_names(layers) == ["0.x", "1.x", "1.y"]


def test_long_names_of_layers_make_the_picture_higher_and_not_the_map_smaller(make_view, tmp_path):
    def picture(names):
        layers = tuple(Layer(name, "block", "stage") for name in names)
        layers_image(make_view(networks={"net": layers}), "layers", tmp_path / "l.png")
        from matplotlib.image import imread

        pixels = imread(tmp_path / "l.png")[..., :3]
        full = [int(LEVEL_COLOURS["F"][i : i + 2], 16) / 255 for i in (1, 3, 5)]
        rows = np.any(np.all(np.abs(pixels - full) < 0.02, axis=-1), axis=1)
        return len(pixels), rows.sum()

    long = [f"{letter}.pointwise_projection.convolution_of_the_block_{letter}" for letter in "abcd"]
    (_, before), (height, after) = picture("abcd"), picture(long)
    assert after > 0.9 * before
    assert height > before
    assert short_names([Layer("only", "", "")]) == ["only"]


def test_a_network_of_another_depth_has_gaps_not_wrong_letters(make_view):
    view = make_view()
    short = view.trials[0]
    deep = [Layer(f"l{i}", "", "s") for i in range(4)]
    trials = [
        short.__class__(**{**short.__dict__, "plan": "FB", "network": "small"}),
        *view.trials[1:],
    ]
    view = make_view(trials=trials, networks={"net": deep, "small": deep[:2]})
    rows = [list(row) for row in layers_figure(view, "").data[0].text]
    assert rows[0] == ["F", "B", "", ""]


# Hypervolume, importance, methods


def test_hypervolume_is_shown_over_trials_and_over_time(make_view):
    trials = hypervolume_figure([make_view()], "", "trials")
    time = hypervolume_figure([make_view()], "", "time")
    assert list(trials.data[0].x) == [1, 2, 3, 4, 5, 6]
    assert list(time.data[0].x) == [0, 2, 4, 6, 8, 10]
    assert "seconds" in time.layout.xaxis.title.text
    assert list(trials.data[0].y) == pytest.approx([0, 10, 20, 30, 40, 50])


def test_small_importances_are_summed_up():
    shares = {f"p{i}": 1 / 50 for i in range(50)}
    bars = importance_figure(shares, "").data[0]
    assert len(bars.x) == MOST_BARS + 1
    assert sum(bars.x) == pytest.approx(100)
    assert bars.y[0] == f"{50 - MOST_BARS} others"


def test_the_best_of_a_method_follows_the_direction(make_view):
    view = make_view()
    assert {p.method: p.plan for p in best_points(view)} == {"bnn": "FFFB", "bnn++": "FFBB"}
    least = make_view(quality=Axis("val_accuracy", "error", False, False, "error"))
    assert {p.method: p.plan for p in best_points(least)} == {"bnn": "FBBB", "bnn++": "BFBB"}


def test_parallel_coordinates_show_all_of_the_front_and_a_choice_of_the_rest(make_view):
    view = make_view()
    one = view.trials[4]
    many = [one.__class__(**{**one.__dict__, "id": f"x{i}", "number": 100 + i}) for i in range(900)]
    figure = coordinates_figure(make_view(trials=[*view.trials, *many]), "")
    shown = {i for t in figure.data for i in t.customdata} - {None}
    assert set(view.front) <= shown
    assert len(shown) <= MOST_LINES + len(view.front)
    names = list(figure.layout.xaxis.ticktext)
    assert names[-2:] == ["flops_pct", "val_accuracy"]
    assert "optimizer.lr" in names


def test_rungs_show_only_trials_with_an_end_and_mark_the_spared(make_view):
    figure = rungs_figure(make_view(), "")
    by_name = {t.name: list(t.customdata) for t in figure.data}
    assert by_name["at 30 %, control: would have stopped here"] == ["e04"]
    assert "e07" not in by_name["at 30 %, ran on"]


def test_failures_are_counted_by_reason_and_method(make_view):
    view = make_view()
    (reason,) = reasons(view)
    assert (reason.name, reason.count, reason.message) == ("nan", 1, "the loss is nan")
    (bar,) = failures_figure(view, "").data
    assert (bar.name, list(bar.x)) == ("bnn", [1])


# Two searches


def test_an_overlay_tells_who_contributes_to_the_joint_front(make_view):
    better, worse = make_view("alpha", shift=0.05), make_view("beta")
    overlay = Overlay([worse, better])
    assert [i for i, _ in overlay.joint] == [1, 1, 1, 1]
    assert overlay.share(better) > overlay.share(worse)
    assert "points of hypervolume" in overlay.sentence()
    names = [t.name for t in overlay_figure(overlay, "").data if t.mode == "markers"]
    assert names == ["beta: 4 beaten by the other", "alpha: 4 on the joint front"]


# Pages


def test_the_report_has_everything_in_one_file(make_view):
    page = report_html(make_view(), {"method": 1.0})
    assert page.count("plotly.js v") >= 1
    assert len(re.findall(r"<script>/\*\*\s*\* plotly", page)) == 1
    for name in ("front", "over-trials", "over-time", "layers", "methods", "importance",
                 "coordinates", "curves", "rungs", "failures"):  # fmt: skip
        assert f'id="{name}-figure"' in page
    for word in ("name: example", "bitfront run search.yaml", "the loss is nan", "made by hand"):
        assert word in page
    assert not re.search(r'(src|href)="(?!#)', page.split("<script>")[0])


def test_a_report_says_lower_is_better_where_it_is(make_view):
    down = make_view(quality=ERROR, rungs=(), labels={"share": False, "maximize": False})
    page = report_html(down, {})
    assert "Down and to the left is better" in page
    assert "Up and to the left is better" in report_html(make_view(), {})
    assert 'id="rungs-figure"' not in page


def test_three_objectives_add_pairs(make_view):
    size = Axis("bytes", "bytes of the packed checkpoint", False, short="bytes")
    view = make_view()
    three = make_view(
        objectives=[*view.objectives, size],
        objective_values={k: [*v, 1000.0] for k, v in view.objective_values.items()},
        reference=[0.1, 110.0, 5000.0],
        ideal=[1.0, 0.0, 0.0],
    )
    page = report_html(three, {})
    assert all(f'id="pair-{i}-{j}-figure"' in page for i, j in ((0, 1), (0, 2), (1, 2)))


def test_nothing_breaks_out_of_a_report(make_view):
    evil = "</script><script>alert(1)</script>"
    page = report_html(make_view(evil, description=evil, yaml=evil, stopping=evil), {evil: 1.0})
    assert "<script>alert(1)" not in page
    assert "<script>alert(1)" not in comparison_html([make_view(evil), make_view(evil)])


def test_an_empty_search_has_a_report_too(make_view):
    empty = make_view(
        trials=[], points=[], front=[], objective_values={}, hypervolume=[], networks={}
    )
    assert "no finished trials yet" in report_html(empty, {})


def test_a_figure_is_data_not_code(make_view):
    text = placed(front_figure(make_view().points, "<b>"), "front")
    assert "<b>" not in text


# For papers


@pytest.mark.parametrize("extension", ["pdf", "svg", "png"])
def test_papers_get_files_with_their_fonts_inside(make_view, tmp_path, extension):
    view = make_view()
    made = [
        layers_image(view, "layers", tmp_path / f"l.{extension}"),
        hypervolume_image([view], "growth", tmp_path / f"h.{extension}"),
        importance_image({"lr": 0.7, "method": 0.3}, "accuracy", "t", tmp_path / f"i.{extension}"),
    ]
    heads = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}
    for path in made:
        data = path.read_bytes()
        assert data.startswith(heads[extension])
        if extension == "pdf":
            assert b"/FontFile2" in data
            assert b"/Type3" not in data
        if extension == "svg":
            assert b"<text" not in data  # outlines need no font
    again = layers_image(view, "layers", tmp_path / f"again.{extension}")
    assert again.read_bytes() == made[0].read_bytes()


def test_a_pdf_has_the_labels_of_its_axes(make_view, tmp_path):
    path = hypervolume_image([make_view()], "growth", tmp_path / "h.pdf")
    streams = re.findall(rb"stream\r?\n(.*?)endstream", path.read_bytes(), re.S)
    drawn = b"".join(zlib.decompress(s) for s in streams if s[:1] == b"x")
    assert drawn.count(b"BT") >= 3  # the title and both labels, besides the ticks


def test_a_quantizer_is_drawn_forward_and_backward(tmp_path):
    shapes = {
        "x": [-1.0, 0.0, 1.0],
        "fractions": [0.0, 1.0],
        "values": [5.0, 30.0],
        "forward": {"weights": [[-1, 0, 1], [-1, 0, 1]]},
        "backward": {"weights": [[1, 1, 1], [0, 9, 0]]},
    }
    assert quantizer_image(shapes, "bnn++", tmp_path / "q.png").stat().st_size < 80_000


def test_every_reason_the_session_gives_has_a_meaning() -> None:
    """The reasons are words of the watcher and of the worker."""
    root = Path(__file__).parents[3]
    watcher = (root / "search" / "cluster" / "watcher.py").read_text()
    given = set(re.findall(r'reason, message = "([^"]+)"', watcher))
    assert {"lost worker", "hung"} <= given <= set(MEANINGS)
