"""A search in the terminal: its front, its state, what comes next. Every line fits the width."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from search import terminal
from search.entry import Entry
from search.plan_text import FORMS, by_stage, letters
from search.progress import duration
from search.results import Results
from search.terminal import count, measured, short
from trainables.kinds import Metric
from trainables.registry import UserError

COST_HEADS = {"flops_pct": "flops %"}


@dataclass
class Column:
    head: str
    cells: list[str]
    optional: int | None = None
    """left out where there is no room, the lowest first"""


def front_table(results: Results, wide: bool = False, colours: bool = False) -> str:
    """`wide`: everything, however long the lines become."""
    entries = results.front
    if not entries:
        return "(none)"
    first = [
        Column("trial", [e.id for e in entries]),
        Column("method", [e.spec.method for e in entries]),
    ]
    last = _numbers(results)
    groups = [by_stage(e.spec.plan, results.networks.stages(e.spec.task)) for e in entries]
    if wide:
        plans = Column("plan", [letters(g) for g in groups])
        columns = [*first, plans, *last, Column("settings", [settings(e) for e in entries])]
        return _plain(columns, {2: terminal.painted_plan} if colours else {})
    if len({e.spec.plan for e in entries}) == 1 and any(map(settings, entries)):
        # What tells these points apart is not the plan.
        return _fitted([*first, Column("settings", [settings(e) for e in entries]), *last])
    for form in FORMS:
        columns = [*first, Column("plan", [form(g) for g in groups]), *last]
        if _fits(columns):
            break
    return _fitted(columns, colours)


def _numbers(results: Results) -> list[Column]:
    """What is optimized first, then how sure that is and the other costs."""
    config, entries = results.config, results.front
    metrics = {m.name: m for m in config.kind.metrics}
    found = [
        Column(f"val {short(metrics[name])}", [_metric(e, metrics[name], results) for e in entries])
        for name in config.objectives
        if name in metrics
    ]
    sure = ["-" if e.confidence is None else f"{100 * e.confidence:.0f}" for e in entries]
    found.append(Column("sure %", sure, optional=3))
    # Shares are of the same network in full precision: of networks of several sizes they do not
    # say which one is cheaper.
    one_size = len({e.costs["parameters"] for e in entries}) == 1
    wanted = {name for name in config.objectives if name not in metrics}
    if one_size and "flops" in wanted:
        wanted = wanted - {"flops"} | {"flops_pct"}
    droppable = {"bytes": 0, "flops": 1, "flops_pct": 2}
    for name in ("flops_pct", "flops", "bytes", *sorted(wanted - set(droppable))):
        cells = [_cost(e.costs[name], name) for e in entries]
        optional = None if name in wanted else droppable.get(name)
        found.append(Column(COST_HEADS.get(name, name), cells, optional))
    return found


def _metric(entry: Entry, metric: Metric, results: Results) -> str:
    """The first one has a spread."""
    if metric.name == results.config.quality.name:
        return measured(entry, metric)
    return metric.number(entry.metrics.get(metric.name))


def _cost(value: float, name: str) -> str:
    return f"{value:.1f}" if name == "flops_pct" else count(value)


def settings(entry: Entry) -> str:
    """What was drawn for a trial, by the last part of each name."""
    drawn = {name.rpartition(".")[2]: value for name, value in entry.drawn.items()}
    drawn.pop("method", None)
    return " ".join(f"{name}={_value(value)}" for name, value in drawn.items())


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _optional(columns: list[Column]) -> list[int]:
    ranked = [(c.optional, i) for i, c in enumerate(columns) if c.optional is not None]
    return [i for _, i in sorted(ranked)]


def _fits(columns: list[Column]) -> bool:
    widths = [max(map(len, [c.head, *c.cells])) for c in columns]
    kept = terminal.kept_columns(widths, _optional(columns))
    return terminal.total_width([widths[i] for i in kept]) <= terminal.width()


def _fitted(columns: list[Column], colours: bool = False) -> str:
    rows = list(zip(*(c.cells for c in columns), strict=True))
    return terminal.table(
        [c.head for c in columns],
        rows,
        flexible=2,
        optional=_optional(columns),
        paint={2: terminal.painted_plan} if colours else {},
    )


def _plain(columns: list[Column], paint: Any) -> str:
    rows = list(zip(*(c.cells for c in columns), strict=True))
    return terminal.table([c.head for c in columns], rows, paint=paint)


def front_summary(results: Results, wide: bool = False, colours: bool = False) -> str:
    """The front with what it was measured against."""
    config = results.config
    reference = ", ".join(
        f"{name} {value:.4g}"
        for name, value in zip(config.objectives, results.reference, strict=True)
    )
    done = results.counts()["complete"]
    told = [
        f"hypervolume {100 * results.hypervolume_share:.2f} % of the box from the reference "
        f"({reference}) to a perfect, free network",
        "flops: MixBin convention, % of the full-precision network of the same size",
        "sure: the probability that no other point is better and no dearer; "
        "± over seeds, their number in brackets",
    ]
    if results.stopping is not None:
        told.append(results.stopping.sentence())
    head = f"Front of {config.name}: {len(results.front)} of {done} complete trials"
    lines = [head, *_shared_plan(results, wide)]
    return "\n".join(
        [
            *map(_filled, lines),
            "",
            front_table(results, wide, colours),
            "",
            *map(_filled, told),
        ]
    )


def _shared_plan(results: Results, wide: bool) -> list[str]:
    """The plan where it is the same for all points, and the table has no column for it."""
    plans = {e.spec.plan for e in results.front}
    if wide or len(plans) != 1 or not any(map(settings, results.front)):
        return []
    first = results.front[0]
    groups = by_stage(first.spec.plan, results.networks.stages(first.spec.task))
    return [f"plan of all of them: {FORMS[1](groups)}"]


def _filled(text: str) -> str:
    return textwrap.fill(text, terminal.width())


def next_commands(results: Results) -> str:
    name = results.config.name
    commands = [
        (f"bitfront ui {name}", "all runs in MLflow"),
        (f"bitfront dashboard {name}", "look around in a browser"),
        (f"bitfront export {name} --budget 40%", "a point as recipe.yaml"),
        ("bitfront train recipe.yaml", "final training"),
    ]
    if results.state_without_driver == "interrupted":
        commands.insert(0, (f"bitfront resume {name}", "continue where it stopped"))
    longest = max(len(command) for command, _ in commands)
    lines = (f"  {command.ljust(longest)}   {what}" for command, what in commands)
    return "\n".join(["Next:", *(terminal.shortened(line, terminal.width()) for line in lines)])


STATUS_HEADERS = ["search", "state", "trials", "run", "failed", "best", "front", "hv %", "time"]
# Left out first where the names of searches are long.
STATUS_OPTIONAL = (3, 6, 8)


def status_row(results: Results) -> list[str]:
    s = results.status_json()
    trials = s["trials"]
    started = [e.started for e in results.entries if e.started]
    ended = [e.ended for e in results.entries if e.ended]
    spent = duration(max(ended) - min(started)) if started and ended else "-"
    done = trials["complete"] + trials["pruned"] + trials["failed"]
    return [
        s["search"],
        s["state"],
        f"{done}/{s['budget']}",
        str(trials["running"]),
        str(trials["failed"]),
        results.config.quality.number(results.best, 1),
        str(s["front"]),
        terminal.percent(s["hypervolume_share"]),
        spent,
    ]


def failure_lines(results: Results, most: int = 3) -> list[str]:
    """How many trials failed for what, and the last ones with their messages."""
    failed = [e for e in results.entries if e.state == "failed"]
    if not failed:
        return []
    listed = ", ".join(f"{n} {reason}" for reason, n in results.failures().items())
    lines = [f"{results.config.name}: failed trials: {listed}"]
    for entry in failed[-most:]:
        first = ((entry.message or "").splitlines() or [""])[0]
        lines.append(f"  {entry.id} {entry.failure}: {first}")
    return [terminal.shortened(line, terminal.width()) for line in lines]


def status_table(found: list[tuple[str, Results | UserError]], colours: bool = False) -> str:
    """A row a search; a search that cannot be read has a sentence below."""
    dashes = ["-"] * (len(STATUS_HEADERS) - 2)
    rows = [
        [name, "broken", *dashes] if isinstance(each, UserError) else status_row(each)
        for name, each in found
    ]
    lines = [
        terminal.table(
            STATUS_HEADERS,
            rows,
            flexible=0,
            optional=STATUS_OPTIONAL,
            paint={1: terminal.painted_state} if colours else {},
        )
    ]
    for name, each in found:
        if isinstance(each, UserError):
            lines.append(_filled(f"{name}: {each.message}"))
        else:
            lines += failure_lines(each)
    return "\n".join(lines)
