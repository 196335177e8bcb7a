"""The files that a search writes when it ends (report, front, heat map, curves), in its folder and
as artifacts of its MLflow run. `PICTURES` hands these functions, and those for single trials and
selectors, to the session and to tracking, which draw nothing themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitfront.dashboards.figures.front.image import front_image
from bitfront.dashboards.figures.front.interactive import front_html
from bitfront.dashboards.figures.front.pairs import pair_points, pairs_html, pairs_png
from bitfront.dashboards.figures.front.table import front_csv
from bitfront.dashboards.figures.networks.kept import kept_csv, kept_png
from bitfront.dashboards.figures.networks.masks import kept_kernels_image
from bitfront.dashboards.figures.networks.predictions import predictions_image
from bitfront.dashboards.figures.networks.quantizer import quantizer_image
from bitfront.dashboards.figures.networks.scores import scores_csv, scores_html, scores_png
from bitfront.dashboards.figures.trials.drops import curves_csv, curves_png
from bitfront.dashboards.figures.trials.heatmap import (
    Cell,
    heat_map_csv,
    heat_map_html,
    heat_map_png,
)
from bitfront.dashboards.pages.report import report_of
from bitfront.search.config.space import build_space
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.pictures import Pictures
from bitfront.search.results.reader import view_of
from bitfront.search.results.results import Results
from bitfront.search.results.view import SearchView
from bitfront.search.tracking.notes import REPORT, SMALL_FRONT
from bitfront.spaces.space import OnlyPlan
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.costs.devices import KEPT
from bitfront.trainables.files import replacing, write_atomically
from bitfront.trainables.methods import build_method
from bitfront.trainables.own_code import shown


def write_figures(results: Results) -> dict[str, str | Path]:
    """Write report.html, front.html, front.png and front.csv beside the ledger and return all
    written files by name; heatmap.* where the plan has one binary part, pairs.* for more than two
    objectives, kept.* and curves.* where trials prune."""
    # Plotly uses pandas where `sys.modules` has it. The tracker's thread may be importing it just
    # now: this import waits until it is complete.
    import pandas  # noqa: F401

    # The driver that calls this is about to end.
    view = replace(view_of(results), state=results.state_without_driver)
    out = results.folder.path
    write_atomically(out / "front.html", front_html(view.points, view.title, **view.labels))
    write_atomically(out / "front.csv", front_csv(view.points, results.figure_quality.bare))
    with replacing(out / "front.png") as part:
        front_image(view.points, view.title, part, **view.labels)
    with replacing(out / SMALL_FRONT) as part:
        front_image(view.points, view.title, part, dpi=80, **view.labels)
    write_atomically(out / REPORT, report_of(view))
    names = [REPORT, "front.html", "front.png", SMALL_FRONT, "front.csv"]
    names += [KEPT] if (out / KEPT).is_file() else []
    names += _write_heat_map(results, view)
    names += _write_pairs(out, view)
    names += _write_pruning(results, view)
    return {name: out / name for name in names}


def _write_pairs(out: Path, view: SearchView) -> list[str]:
    if len(view.objectives) < 3:
        return []
    points, labels = pair_points(view), [axis.label for axis in view.objectives]
    write_atomically(out / "pairs.html", pairs_html(points, labels, view.title))
    with replacing(out / "pairs.png") as part:
        pairs_png(points, labels, view.title, part)
    return ["pairs.html", "pairs.png"]


def _write_pruning(results: Results, view: SearchView) -> list[str]:
    """Write the weights that layers keep (kept.*) and learning curves (curves.*) by exponent p of
    the pruning rate: of the trials with the highest rate, the best one of each p. Returns the names
    of the files, none where no trial prunes."""
    quality = results.figure_quality
    pruned = [
        e
        for e in results.entries
        if e.state == TrialState.COMPLETE
        and e.history
        and {"rate", "p"} <= set(e.spec.canonical().params)
    ]
    if not pruned:
        return []
    methods = [e.spec.canonical() for e in pruned]
    rate = max(float(spec.params["rate"]) for spec in methods)
    best: dict[float, Entry] = {}
    for entry, spec in zip(pruned, methods, strict=True):
        p = float(spec.params["p"])
        worse = p not in best or quality.better(
            entry.metrics[quality.name], best[p].metrics[quality.name]
        )
        if float(spec.params["rate"]) == rate and worse:
            best[p] = entry
    first = next(iter(best.values())).spec
    sizes = task_cost_table(first.task).sizes(first.plan)
    kept, curves = {}, {}
    for p in sorted(best):
        spec = best[p].spec
        kept[f"p {p:g}"] = build_method(spec.method, dict(spec.params)).kept(sizes) or sizes
        curves[f"p {p:g}"] = [row[quality.name] for row in best[p].history if quality.name in row]
    out, title = results.folder.path, f"{view.title}, r = {rate:g}"
    with replacing(out / "kept.png") as part:
        kept_png(kept, sizes, title, part)
    write_atomically(out / "kept.csv", kept_csv(kept, sizes))
    with replacing(out / "curves.png") as part:
        curves_png(curves, title, f"validation {quality.label}", part)
    write_atomically(out / "curves.csv", curves_csv(curves))
    return ["kept.png", "kept.csv", "curves.png", "curves.csv"]


def _write_heat_map(results: Results, view: SearchView) -> list[str]:
    """Write the quality by method and by the only binary part of the network (heatmap.*); returns
    the names of the files, none where plans are not of this kind."""
    plan = results.config.space.get("plan")
    if not isinstance(plan, dict) or "only" not in plan:
        return []
    space = build_space(results.config)
    assert isinstance(space.plan, OnlyPlan)
    table = task_cost_table(results.config.task)
    parts = space.plan.names(table)
    cells = [
        Cell(
            shown(entry.spec.method),
            space.plan.chosen(table, entry.spec.plan),
            entry.metrics[results.figure_quality.name],
        )
        for entry in results.entries
        if entry.state == TrialState.COMPLETE and set(entry.spec.plan) != {"F"}
    ]
    label = f"the one {space.plan.per} that is binary ({space.plan.level})"
    out, title, quality = results.folder.path, view.title, view.quality.label
    page = heat_map_html(cells, parts, title, label, quality)
    write_atomically(out / "heatmap.html", page)
    write_atomically(out / "heatmap.csv", heat_map_csv(cells, parts))
    with replacing(out / "heatmap.png") as part:
        heat_map_png(cells, parts, title, label, part, quality)
    return ["heatmap.html", "heatmap.png", "heatmap.csv"]


def write_scores(rows: Sequence[Mapping[str, Any]], title: str, label: str, stem: Path) -> None:
    """Write the scores of a selector as STEM.csv, .html and .png; `label` names the scores."""
    write_atomically(stem.with_name(f"{stem.name}.csv"), scores_csv(rows))
    write_atomically(stem.with_name(f"{stem.name}.html"), scores_html(rows, title, label))
    with replacing(stem.with_name(f"{stem.name}.png")) as part:
        scores_png(rows, title, label, part)


PICTURES = Pictures(
    of_search=write_figures,
    of_selection=write_scores,
    of_trial={
        "predictions": predictions_image,
        "quantizer": quantizer_image,
        "masks": kept_kernels_image,
    },
)
