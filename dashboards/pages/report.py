"""The report of a search: one page to send around. It works offline, on a phone and on a dark
screen; a click on a point shows its trial. Several searches side by side are in `comparison`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.front.interactive import front_figure
from bitfront.dashboards.figures.front.pairs import pair_figures, pair_points
from bitfront.dashboards.figures.networks.layers import kept_in_full, layers_figure
from bitfront.dashboards.figures.trials.contour import contour_figure, numeric
from bitfront.dashboards.figures.trials.coordinates import coordinates_figure
from bitfront.dashboards.figures.trials.curves import curves_figure
from bitfront.dashboards.figures.trials.effects import effects_figure
from bitfront.dashboards.figures.trials.failures import MEANINGS, failures_figure, reasons
from bitfront.dashboards.figures.trials.hypervolume import hypervolume_figure
from bitfront.dashboards.figures.trials.importance import importance_figure
from bitfront.dashboards.figures.trials.methods import methods_figure
from bitfront.dashboards.figures.trials.rungs import rungs_figure
from bitfront.dashboards.figures.trials.slices import slice_figures
from bitfront.dashboards.figures.trials.timeline import timeline_figure
from bitfront.dashboards.pages.insights import rules
from bitfront.dashboards.pages.page import page, placed
from bitfront.dashboards.pages.panel import click_data, measured
from bitfront.dashboards.pages.pieces import (
    Section,
    caption,
    direction,
    escaped,
    panel,
    reproduction,
    section,
    table,
)
from bitfront.dashboards.pages.tiles import decided, tiles
from bitfront.search.durations import duration
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.figure_data import MEASURED_HEAD
from bitfront.search.results.importance import importances
from bitfront.search.results.view import SearchView

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Points beyond these are in front.csv only.
MOST_ROWS = 60


def report_of(view: SearchView) -> str:
    """The report of one search, as a page."""
    return report_html(view, importances(view))


def report_html(view: SearchView, importance: Mapping[str, float]) -> str:
    """The report of one search; `importance` is what `importances` returns for it."""
    sections = [*_findings(view), *_explanations(view, importance), _repetition(view)]
    links = "".join(f'<a href="#s-{name}">{escaped(title)}</a>' for name, title, _ in sections)
    body = (
        f"<h1>{escaped(view.name)}</h1>\n{_description(view)}\n{_tiles(view)}\n"
        f'<nav aria-label="contents">{links}</nav>\n'
        + "\n".join(section(*each) for each in sections)
    )
    return page(f"{view.title} · bitfront report", body, click_data([view]))


def _findings(view: SearchView) -> list[Section]:
    """Sections on the result: front, hypervolume, plans and methods."""
    front = front_figure(view.points, "", **view.labels)
    found = [
        (
            "front",
            "Front",
            caption(direction(view) + " Click a point for its plan and its command.")
            + placed(front, "front")
            + panel()
            + _front_table(view)
            + "".join(map(caption, view.limits)),
        )
    ]
    found.append(("insights", "In words", _insights(view)))
    if view.finals:
        found.append(("finals", "Final trainings", _finals(view)))
    if len(view.objectives) > 2:
        figures = pair_figures(pair_points(view), [axis.label for axis in view.objectives])
        pairs = "".join(placed(figure, name) for name, figure in figures.items())
        words = "A point of the front may be dominated here: it is better in a third objective."
        found.append(("pairs", "Objectives in pairs", caption(words) + pairs))
    box = "The box lies between the reference ({}) and a perfect network that costs nothing."
    if any(int(p.extra.get("seeds", 1)) > 1 for p in view.points):
        box += " A point counts with the mean of its seeds: another seed may lower the curve."
    reference = ", ".join(
        f"{axis.short or axis.name} {axis.text(value)}"
        for axis, value in zip(view.objectives, view.reference, strict=True)
    )
    found.append(
        (
            "hypervolume",
            "Hypervolume",
            placed(hypervolume_figure([view], "", "trials"), "over-trials")
            + placed(hypervolume_figure([view], "", "time"), "over-time")
            + caption(box.format(reference)),
        )
    )
    found.append(("time", "Time", _time(view)))
    found.append(("layers", "Layers along the front", _layers(view)))
    found.append(("methods", "Best of every method", placed(methods_figure(view, ""), "methods")))
    return found


def _finals(view: SearchView) -> str:
    """What points of the front reach when they are trained to the end, beside what the search
    measured."""
    bare = view.quality.name.removeprefix("val_")
    names = [f"{part}_{bare}" for part in ("test", "val")]
    part = next((n for n in names if any(n in f.metrics for f in view.finals)), names[0])
    heads = ["recipe", "trial", "method", "epochs", "seed", f"in the search, {view.quality.short}"]
    heads += [part.replace("_", " "), "time", "plan"]
    rows = []
    for final in view.finals:
        point = view.point_of.get(final.trial)
        rows.append(
            [
                final.recipe,
                final.trial or "-",
                final.method,
                final.epochs,
                final.seed,
                measured(view, point) if point is not None else "-",
                view.quality.text(final.metrics.get(part)),
                duration(final.seconds),
                final.plan,
            ]
        )
    groups: dict[str, list[float]] = {}
    for final in view.finals:
        if part in final.metrics:
            groups.setdefault(f"{final.recipe}, {final.epochs} epochs", []).append(
                final.metrics[part]
            )
    means = [
        f"{name}: mean {view.quality.text(fmean(v))} ± {view.quality.number(stdev(v))} over "
        f"{len(v)} seeds"
        for name, v in groups.items()
        if len(v) > 1
    ]
    return table(heads, rows) + "".join(map(caption, means))


def _time(view: SearchView) -> str:
    """When trials were trained."""
    gaps = len(view.clock.gaps)
    words = "A bar per trial; rows are trials at once."
    if gaps:
        pauses = "A pause" if gaps == 1 else f"{gaps} pauses"
        words += f" {pauses} between turns {'is' if gaps == 1 else 'are'} left out (dotted lines)."
    return placed(timeline_figure(view, ""), "timeline") + caption(words)


def _insights(view: SearchView) -> str:
    """What the front shows as sentences, and what the next trials may add to it."""
    said = [rule.sentence for rule in rules(view)] or ["No rule holds for all points of the front."]
    listed = "".join(f"<li>{escaped(text)}</li>\n" for text in said)
    words = "Effects are those of a linear model of all finished trials, ± their standard error."
    tries = "".join(f"<li>{escaped(text)}</li>\n" for text in view.tries)
    ahead = f"<h3>What it would try next</h3>\n<ul>\n{tries}</ul>\n" if tries else ""
    told = "".join(map(caption, decided(view)))
    return f"<ul>\n{listed}</ul>\n{caption(words)}{told}{ahead}"


def _explanations(view: SearchView, importance: Mapping[str, float]) -> list[Section]:
    """Sections on the causes: importances, settings, curves, early stopping and failures."""
    words = (
        "Optuna's fANOVA over what all finished trials have in common: how much of the variance of "
        f"{view.quality.label.removesuffix(', %')} each explains. Not how much it helps."
    )
    slices = slice_figures(view, importance)
    found = [
        (
            "importance",
            "What mattered",
            placed(importance_figure(importance, ""), "importance") + caption(words),
        ),
        (
            "coordinates",
            "Parallel coordinates",
            placed(coordinates_figure(view, ""), "coordinates")
            + caption("Thick lines are the front. A click in the legend hides a method."),
        ),
        ("curves", "Learning curves", placed(curves_figure(view, ""), "curves")),
    ]
    if slices:
        found.insert(1, ("slices", "One setting at a time", _slices(view, slices, importance)))
    if view.rungs:
        words = (view.stopping or "") + ". Only trials that ran to the end can be shown here."
        found.append(
            (
                "rungs",
                "Early stopping: how well rungs predict the end",
                caption(words[:1].upper() + words[1:]) + placed(rungs_figure(view, ""), "rungs"),
            )
        )
    if view.counts[TrialState.FAILED]:
        found.append(("failures", "Failures", _failures(view)))
    return found


def _slices(
    view: SearchView, slices: Mapping[str, go.Figure], importance: Mapping[str, float]
) -> str:
    """A small picture per setting, and one over the two that matter most."""
    small = "".join(placed(figure, f"slice-{i}") for i, figure in enumerate(slices.values()))
    names = numeric(view, importance)
    both = ""
    if len(names) > 1:
        words = f"Both at once, mean of the trials around: {names[0]} and {names[1]}."
        both = caption(words) + placed(contour_figure(view, names[0], names[1], ""), "contour")
    return f'<div class="small">{small}</div>{both}'


def _repetition(view: SearchView) -> Section:
    """The section that says how to run the search again."""
    return "reproduce", "How to do it again", reproduction(view)


def _layers(view: SearchView) -> str:
    """The levels along the front, and which layers are always or never in full precision."""
    kept = sorted(kept_in_full(view), key=lambda row: -row[1])
    always = [name for name, share in kept if share == 1.0]
    never = [name for name, share in kept if share == 0.0]
    words = "Cheapest at the bottom."
    if len(view.front) > 1 and (always or never):
        words += f" Always in full precision: {_listed(always)}; never: {_listed(never)}."
    effects = "What it does to the quality to make each layer binary, other things being equal: a "
    effects += "linear model of all finished trials, ± its standard error; grey is not clear."
    return (
        placed(layers_figure(view, ""), "layers")
        + caption(words)
        + placed(effects_figure(view, ""), "effects")
        + caption(effects)
    )


def _listed(names: Sequence[str]) -> str:
    """The first eight names, and how many more there are."""
    if not names:
        return "none"
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _failures(view: SearchView) -> str:
    """The reasons of failures as a figure and as a table."""
    rows = [
        [r.name, r.count, MEANINGS.get(r.name, ""), r.message[:300], _listed(r.trials)]
        for r in reasons(view)
    ]
    headers = ["reason", "trials", "what it means", "last message", "which"]
    common = caption(f"What fails: {'. '.join(view.failing)}.") if view.failing else ""
    figure = placed(failures_figure(view, ""), "failures")
    return figure + common + table(headers, rows, wide={3, 4})


def _description(view: SearchView) -> str:
    """Description, dataset and model of a search, in a line."""
    text = f"{view.description} · " if view.description else ""
    return f'<p class="faint">{escaped(text)}{escaped(view.dataset)}, {escaped(view.model)}</p>'


def _tiles(view: SearchView) -> str:
    """The search at a glance."""
    shown = tiles(view).items()
    cells = (f"<div><dt>{escaped(k)}</dt><dd>{escaped(v)}</dd></div>" for k, v in shown)
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _front_table(view: SearchView) -> str:
    """The points of the front as a table."""
    shown = [key for key in view.front[:MOST_ROWS] if key in view.point_of]
    settings = list(dict.fromkeys(name for key in shown for name in view.by_id[key].settings))
    heads = ["trial", "method", *settings]
    timed = any(MEASURED_HEAD in view.point_of[key].extra for key in shown)
    heads += [view.quality.short, view.cost.name, *([MEASURED_HEAD] if timed else [])]
    heads += ["seeds", "sure %", "plan"]
    rows = []
    for key in shown:
        trial, point = view.by_id[key], view.point_of[key]
        cost = trial.values.get(view.cost.name)
        rows.append(
            [
                trial.id,
                trial.method,
                *(trial.settings.get(name, "-") for name in settings),
                measured(view, point),
                view.cost.text(cost),
                *([point.extra.get(MEASURED_HEAD, "-")] if timed else []),
                point.extra.get("seeds", "1"),
                point.extra.get("sure %", "-"),
                trial.plan,
            ]
        )
    left = len(view.front) - MOST_ROWS
    more = caption(f"{left} more in front.csv") if left > 0 else ""
    rows_of_front = table(heads, rows, ids=shown)
    notes = []
    if any(view.point_of[key].seeds > 1 for key in shown):
        notes.append(f"{view.quality.short}: mean over a point's seeds, ± their standard deviation")
    if timed:
        notes.append(f"{MEASURED_HEAD}: {view.measured_on}")
    if view.cost.name == "flops_pct" and view.full_flops:
        notes.append(
            "flops_pct: of the dearest network of the search in full precision, "
            f"{view.full_flops:,.0f} FLOPs"
        )
    words = caption("; ".join(notes)) if notes else ""
    return f"<details open><summary>as a table</summary>{rows_of_front}{words}{more}</details>"
