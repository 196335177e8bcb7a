"""The report of a search, and the pictures it leaves in its folder, for people and for MLflow. What
they look like is in `bitfront.dashboards`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bitfront.dashboards.figures.front import front_csv, front_html, front_image
from bitfront.dashboards.figures.heatmap import Cell, heat_map_csv, heat_map_html, heat_map_png
from bitfront.dashboards.figures.pairs import pairs_html, pairs_png
from bitfront.dashboards.figures.pruning import curves_csv, curves_png, kept_csv, kept_png
from bitfront.dashboards.pages.report import report_html
from bitfront.dashboards.view import SearchView
from bitfront.search.config.space import build_space
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.importance import importances
from bitfront.search.results.results import Results
from bitfront.search.results.view import view_of
from bitfront.search.tracking.notes import REPORT, SMALL_FRONT
from bitfront.spaces.space import OnlyPlan
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import replacing, write_atomically
from bitfront.trainables.methods import build_method


def comparable(views: list[SearchView]) -> list[SearchView]:
    """The searches with their objectives in the order of the first one."""
    first = views[0]
    names = [axis.name for axis in first.objectives]
    for view in views[1:]:
        if sorted(axis.name for axis in view.objectives) != sorted(names):
            both = (", ".join(a.name for a in v.objectives) for v in (first, view))
            raise UserError(
                f"'{first.name}' and '{view.name}' have different objectives: {' and '.join(both)}"
            )
    return [view.in_order(names) for view in views]


def report_of(view: SearchView) -> str:
    return report_html(view, importances(view))


def write_figures(results: Results) -> dict[str, str | Path]:
    """report.html, front.html, front.png and front.csv beside the ledger, for the parent run;
    heatmap.* where a search asks which one part may be binary, pairs.* with more than two
    objectives, kept.* and curves.* where exponents of pruning are searched."""
    points = results.figure_points()
    labels = results.figure_labels()
    title = (
        f"{results.config.name}: {results.config.task.dataset}, {results.config.task.model.name}"
    )
    out = results.folder.path
    write_atomically(out / "front.html", front_html(points, title, **labels))
    write_atomically(out / "front.csv", front_csv(points, results.figure_quality.bare))
    with replacing(out / "front.png") as part:
        front_image(points, title, part, **labels)
    with replacing(out / SMALL_FRONT) as part:
        front_image(points, title, part, dpi=80, **labels)
    # The driver that writes this is about to leave.
    view = replace(view_of(results), state=results.state_without_driver)
    write_atomically(out / REPORT, report_of(view))
    names = [REPORT, "front.html", "front.png", SMALL_FRONT, "front.csv"]
    names += _write_heat_map(results, title)
    names += [*_write_pairs(results, title), *_write_pruning(results, title)]
    return {name: out / name for name in names}


def _write_pairs(results: Results, title: str) -> list[str]:
    if len(results.config.objectives) < 3:
        return []
    points, labels = results.pair_points()
    out = results.folder.path
    write_atomically(out / "pairs.html", pairs_html(points, labels, title))
    with replacing(out / "pairs.png") as part:
        pairs_png(points, labels, title, part)
    return ["pairs.html", "pairs.png"]


def _write_pruning(results: Results, title: str) -> list[str]:
    """What layers keep and how trials learn, by exponent: of the trials of the highest rate, the
    best one of each p."""
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
    out, told = results.folder.path, f"{title}, r = {rate:g}"
    with replacing(out / "kept.png") as part:
        kept_png(kept, sizes, told, part)
    write_atomically(out / "kept.csv", kept_csv(kept, sizes))
    with replacing(out / "curves.png") as part:
        curves_png(curves, told, f"validation {quality.label}", part)
    write_atomically(out / "curves.csv", curves_csv(curves))
    return ["kept.png", "kept.csv", "curves.png", "curves.csv"]


def _write_heat_map(results: Results, title: str) -> list[str]:
    plan = results.config.space.get("plan")
    if not isinstance(plan, dict) or "only" not in plan:
        return []
    space = build_space(results.config)
    assert isinstance(space.plan, OnlyPlan)
    table = task_cost_table(results.config.task)
    parts = space.plan.names(table)
    cells = [
        Cell(
            entry.spec.method,
            space.plan.chosen(table, entry.spec.plan),
            entry.metrics[results.figure_quality.name],
        )
        for entry in results.entries
        if entry.state == TrialState.COMPLETE and set(entry.spec.plan) != {"F"}
    ]
    label = f"the one {space.plan.per} that is binary ({space.plan.level})"
    out = results.folder.path
    shown = results.figure_labels()["accuracy_label"]
    page = heat_map_html(cells, parts, title, label, shown)
    write_atomically(out / "heatmap.html", page)
    write_atomically(out / "heatmap.csv", heat_map_csv(cells, parts))
    with replacing(out / "heatmap.png") as part:
        heat_map_png(cells, parts, title, label, part, shown)
    return ["heatmap.html", "heatmap.png", "heatmap.csv"]
