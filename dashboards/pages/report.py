"""The report of a search, or of several side by side: one page to send around. It works offline,
on a phone and on a dark screen; a click on a point shows its trial."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bitfront.dashboards.figures.curves import curves_figure, rungs_figure
from bitfront.dashboards.figures.failures import MEANINGS, failures_figure, reasons
from bitfront.dashboards.figures.front import front_figure
from bitfront.dashboards.figures.hypervolume import hypervolume_figure
from bitfront.dashboards.figures.importance import importance_figure
from bitfront.dashboards.figures.layers import LEVELS, kept_in_full, layers_figure
from bitfront.dashboards.figures.methods import coordinates_figure, methods_figure
from bitfront.dashboards.figures.overlay import Overlay, overlay_figure
from bitfront.dashboards.figures.pairs import PairPoint, pair_figures
from bitfront.dashboards.pages.page import page, placed
from bitfront.dashboards.view import SearchView, TrialView
from bitfront.search.ledger.states import TrialState

# A table of more rows is for the CSV; trials beyond these are not in the panel of a click.
MOST_ROWS = 60
MOST_TRIALS = 1500
SECONDS = ((3600.0, "h"), (60.0, "min"))


def report_html(view: SearchView, importance: Mapping[str, float]) -> str:
    """`importance` is what `search.importance` finds."""
    sections = [*_seen(view), *_understood(view, importance), _reproduced(view)]
    links = "".join(f'<a href="#s-{name}">{_text(title)}</a>' for name, title, _ in sections)
    body = (
        f"<h1>{_text(view.name)}</h1>\n{_description(view)}\n{_tiles(view)}\n<nav>{links}</nav>\n"
        + "\n".join(_section(*section) for section in sections)
    )
    return page(f"{view.title} · bitfront report", body, click_data([view]))


def comparison_html(views: Sequence[SearchView]) -> str:
    """Several searches over one another."""
    overlay = Overlay(views)
    title = " and ".join(view.name for view in views)
    figure = overlay_figure(overlay, "")
    sections = [
        (
            "overlay",
            "Fronts over one another",
            _caption(overlay.sentence() + " " + _direction(views[0]))
            + placed(figure, "overlay")
            + _panel()
            + _overlay_table(overlay),
        ),
        (
            "growth",
            "Hypervolume",
            placed(hypervolume_figure(views, "", "trials"), "over-trials")
            + placed(hypervolume_figure(views, "", "time"), "over-time")
            + _caption("Each search against its own reference."),
        ),
        *(
            (
                f"plans-{i}",
                f"Layers along the front of {view.name}",
                placed(layers_figure(view, ""), f"layers-{i}"),
            )
            for i, view in enumerate(views)
        ),
        *(
            (f"yaml-{i}", f"How {view.name} was made", _reproduction(view))
            for i, view in enumerate(views)
        ),
    ]
    body = f"<h1>{_text(title)}</h1>\n" + "\n".join(_section(*s) for s in sections)
    return page(f"{title} · bitfront report", body, click_data(views))


# --- sections -----------------------------------------------------------------------------------

Section = tuple[str, str, str]


def _seen(view: SearchView) -> list[Section]:
    """What the search found."""
    front = front_figure(view.points, "", **view.labels)
    found = [
        (
            "front",
            "Front",
            _caption(_direction(view) + " Click a point for its plan and its command.")
            + placed(front, "front")
            + _panel()
            + _front_table(view),
        )
    ]
    if len(view.objectives) > 2:
        figures = pair_figures(pair_points(view), [axis.label for axis in view.objectives])
        pairs = "".join(placed(figure, name) for name, figure in figures.items())
        words = "A point of the front may lie behind others here: it is better in a third one."
        found.append(("pairs", "Objectives in pairs", _caption(words) + pairs))
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
            + _caption(box.format(reference)),
        )
    )
    found.append(("layers", "Layers along the front", _layers(view)))
    found.append(("methods", "Best of every method", placed(methods_figure(view, ""), "methods")))
    return found


def _understood(view: SearchView, importance: Mapping[str, float]) -> list[Section]:
    """What it depended on and how it went."""
    words = (
        "Optuna's fANOVA over what all finished trials have in common: how much of the variance of "
        f"{view.quality.label.removesuffix(', %')} each explains. Not how much it helps."
    )
    found = [
        (
            "importance",
            "What mattered",
            placed(importance_figure(importance, ""), "importance") + _caption(words),
        ),
        (
            "coordinates",
            "Parallel coordinates",
            placed(coordinates_figure(view, ""), "coordinates")
            + _caption("Thick lines are the front. A click in the legend hides a method."),
        ),
        ("curves", "Learning curves", placed(curves_figure(view, ""), "curves")),
    ]
    if view.rungs:
        words = (view.stopping or "") + ". Only trials that ran to the end can be shown here."
        found.append(
            (
                "rungs",
                "Early stopping: did the rungs tell the truth?",
                _caption(words[:1].upper() + words[1:]) + placed(rungs_figure(view, ""), "rungs"),
            )
        )
    if view.counts[TrialState.FAILED]:
        found.append(("failures", "Failures", _failures(view)))
    return found


def _reproduced(view: SearchView) -> Section:
    return "reproduce", "How to do it again", _reproduction(view)


def _section(name: str, title: str, body: str) -> str:
    return f'<section id="s-{name}">\n<h2>{_text(title)}</h2>\n{body}\n</section>'


def _layers(view: SearchView) -> str:
    kept = sorted(kept_in_full(view), key=lambda row: -row[1])
    always = [name for name, share in kept if share == 1.0]
    never = [name for name, share in kept if share == 0.0]
    words = "Cheapest at the bottom."
    if len(view.front) > 1 and (always or never):
        words += f" Always in full precision: {_listed(always)}; never: {_listed(never)}."
    return placed(layers_figure(view, ""), "layers") + _caption(words)


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _failures(view: SearchView) -> str:
    rows = [
        [r.name, r.count, MEANINGS.get(r.name, ""), r.message[:300], _listed(r.trials)]
        for r in reasons(view)
    ]
    headers = ["reason", "trials", "what it means", "last message", "which"]
    return placed(failures_figure(view, ""), "failures") + _table(headers, rows, wide={3, 4})


def _reproduction(view: SearchView) -> str:
    commands = "\n".join(f"{c:<44} # {what}" for c, what in view.commands)
    rows = [[name, text] for name, text in view.environment.items()]
    environment = _table(["", ""], rows) if rows else "<p>not recorded</p>"
    return (
        f"<p>Save the YAML as <code>search.yaml</code>.</p>\n<pre>{_text(commands)}</pre>\n"
        f"<details><summary>search.yaml</summary><pre>{_text(view.yaml)}</pre></details>\n"
        f"<details><summary>environment</summary>{environment}</details>"
    )


# --- pieces -------------------------------------------------------------------------------------


def _direction(view: SearchView) -> str:
    up = "Up" if view.quality.maximize else "Down"
    return f"{up} and to the left is better; grey points are dominated."


def _description(view: SearchView) -> str:
    text = f"{view.description} · " if view.description else ""
    return f'<p class="faint">{_text(text)}{_text(view.dataset)}, {_text(view.model)}</p>'


def tiles(view: SearchView) -> dict[str, str]:
    """A search at a glance."""
    counts = view.counts
    ended = counts[TrialState.COMPLETE] + counts[TrialState.STOPPED] + counts[TrialState.FAILED]
    best = [p.accuracy for p in view.points]
    quality = (max if view.quality.maximize else min)(best, default=None)
    found = {
        "state": view.state,
        "trials": f"{ended} of {view.budget_of_trials}",
        "on the front": str(len(view.front)),
        f"best {view.quality.short}": view.quality.text(quality),
        "hypervolume": f"{100 * view.hypervolume_share:.2f} %",
        "time": duration(view.seconds),
    }
    if counts[TrialState.STOPPED]:
        found["stopped early"] = str(counts[TrialState.STOPPED])
    if counts[TrialState.FAILED]:
        found["failed"] = str(counts["failed"])
    return found


def _tiles(view: SearchView) -> str:
    shown = tiles(view).items()
    cells = (f"<div><dt>{_text(k)}</dt><dd>{_text(v)}</dd></div>" for k, v in shown)
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def duration(seconds: float) -> str:
    for unit, name in SECONDS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def _front_table(view: SearchView) -> str:
    shown = [key for key in view.front[:MOST_ROWS] if key in view.point_of]
    settings = list(dict.fromkeys(name for key in shown for name in view.by_id[key].settings))
    measured = [view.quality.short, view.cost.name, "seeds", "sure %", "plan"]
    rows = []
    for key in shown:
        trial, point = view.by_id[key], view.point_of[key]
        spread = f" ± {point.extra['spread']}" if "spread" in point.extra else ""
        cost = trial.values.get(view.cost.name)
        rows.append(
            [
                trial.id,
                trial.method,
                *(trial.settings.get(name, "-") for name in settings),
                view.quality.text(point.accuracy) + spread,
                view.cost.text(cost),
                point.extra.get("seeds", "1"),
                point.extra.get("sure %", "-"),
                trial.plan,
            ]
        )
    left = len(view.front) - MOST_ROWS
    more = _caption(f"{left} more in front.csv") if left > 0 else ""
    table = _table(["trial", "method", *settings, *measured], rows, ids=shown)
    told = []
    if any(view.point_of[key].seeds > 1 for key in shown):
        told.append(f"{view.quality.short}: mean over a point's seeds, ± their standard deviation")
    if view.cost.name == "flops_pct" and view.full_flops:
        told.append(
            "flops_pct: of the dearest network of the search in full precision, "
            f"{view.full_flops:,.0f} FLOPs"
        )
    words = _caption("; ".join(told)) if told else ""
    return f"<details open><summary>as a table</summary>{table}{words}{more}</details>"


def _overlay_table(overlay: Overlay) -> str:
    headers = ["search", "trials", "front", "on the joint front", "hypervolume", "which"]
    rows = []
    for i, view in enumerate(overlay.views):
        joint = overlay.contributed(i)
        share = f"{100 * overlay.share(view):.2f} %"
        counts = [view.counts[TrialState.COMPLETE], len(view.front), len(joint)]
        rows.append([view.name, *counts, share, ", ".join(joint)])
    return _table(headers, rows, wide={5})


def _table(
    headers: Sequence[str],
    rows: Sequence[Sequence[Any]],
    wide: Collection[int] = (),
    ids: Sequence[str] = (),
) -> str:
    """`ids` are the trials of the rows, for a click."""

    def style(i: int) -> str:
        numbers = all(not isinstance(r[i], str) or r[i][:1].isdigit() or r[i] == "-" for r in rows)
        return "wide" if i in wide else "number" if numbers else "word"

    styles = [style(i) for i in range(len(headers))]

    def cells(row: Sequence[Any], kind: str) -> str:
        pairs = zip(row, styles, strict=True)
        return "".join(f'<{kind} class="{s}">{_text(str(v))}</{kind}>' for v, s in pairs)

    head = cells(headers, "th")
    lines = []
    for k, row in enumerate(rows):
        trial = f' data-trial="{_text(ids[k])}"' if ids else ""
        lines.append(f"<tr{trial}>{cells(row, 'td')}</tr>")
    body = "\n".join(lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n{body}</table></div>'


def _panel() -> str:
    return '<div id="trial" hidden></div>\n'


def _caption(text: str) -> str:
    return f'<p class="faint">{_text(text)}</p>\n'


def _text(text: str) -> str:
    return html.escape(text)


def pair_points(view: SearchView) -> list[PairPoint]:
    return [
        PairPoint(
            key,
            tuple(axis.shown(v) for axis, v in zip(view.objectives, values, strict=True)),
            key in view.on_front,
            view.point_of[key].told if key in view.point_of else key,
        )
        for key, values in view.objective_values.items()
    ]


# --- what a click shows -------------------------------------------------------------------------


def click_data(views: Sequence[SearchView]) -> dict[str, Any]:
    """For `page.js`: what it shows of a trial, and the layers its plan is drawn on."""
    networks: dict[str, list[tuple[str, str]]] = {}
    trials: dict[str, dict[str, Any]] = {}
    for view in views:
        front = [view.by_id[key] for key in view.front]
        others = [t for t in view.trials if t.id not in view.on_front]
        for trial in [*front, *others][:MOST_TRIALS]:
            trials[trial.id] = trial_data(view, trial)
        for key, layers in view.networks.items():
            networks[key] = [(layer.name, layer.stage) for layer in layers]
    return {"trials": trials, "networks": networks, "levels": LEVELS}


def trial_data(view: SearchView, trial: TrialView) -> dict[str, Any]:
    point = view.point_of.get(trial.id)
    extra = point.extra if point is not None else {}
    own = view.quality.text(trial.values.get(view.quality.name))
    means = []
    if point is not None and point.seeds > 1:
        spread = f" ± {extra['spread']}" if "spread" in extra else ""
        means = [(f"mean of {point.seeds} seeds", view.quality.text(point.accuracy) + spread)]
        own += " (this trial)"
    rows = [
        ("state", _state(trial)),
        ("method", trial.method),
        ("network", trial.network),
        (view.quality.label, own),
        *means,
        *((axis.label, axis.text(trial.values.get(axis.name))) for axis in _costs(view)),
        *((name, extra[name]) for name in ("sure %",) if name in extra),
        *((name, f"{v:.4g}" if isinstance(v, float) else str(v)) for name, v in _drawn(trial)),
    ]
    done = trial.state == TrialState.COMPLETE
    command = f"bitfront export {view.name} --trial {trial.id}\nbitfront train recipe.yaml"
    return {
        "plan": trial.plan,
        "network": trial.network,
        "rows": rows,
        "command": command if done else "",
    }


def _state(trial: TrialView) -> str:
    if trial.stopped_at is not None:
        return f"stopped at {100 * trial.stopped_at:g} % of training"
    if trial.failure is not None:
        return f"failed: {trial.failure}, {trial.message or ''}"[:300]
    return trial.state


def _drawn(trial: TrialView) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in trial.params.items() if name != "method"]


def _costs(view: SearchView) -> list[Any]:
    axes = [view.cost, *(a for a in view.objectives if a.name != view.quality.name)]
    return list({axis.name: axis for axis in axes}.values())
