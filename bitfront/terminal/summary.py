"""The front of a search as text: a table that fits the terminal, the reference of its hypervolume
and the meaning of its columns. The states of searches are in `status`."""

from __future__ import annotations

from dataclasses import dataclass

from bitfront.search.deciding.limits import limits_in_words
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.figure_data import MEASURED_HEAD
from bitfront.search.results.results import Results
from bitfront.search.results.settings import columns, in_a_line, settings_of, varying
from bitfront.terminal import tables as terminal
from bitfront.terminal.next_commands import after_search, all_failures
from bitfront.terminal.plans import FORMS, by_stage, letters
from bitfront.terminal.tables import count, measured, several, short
from bitfront.trainables.costs import measured as measured_costs
from bitfront.trainables.metrics import Metric
from bitfront.trainables.own_code import shown

COST_HEADS = {"flops_pct": "flops %", "flops_own_pct": "own %"}
# `Column.optional` of sampled settings, which are left out last: they distinguish the points.
SETTINGS = 10


@dataclass
class Column:
    """A column of the table of the front."""

    head: str
    cells: list[str]
    optional: int | None = None
    """the order in which columns are left out on a narrow terminal, the lowest first; None:
    never"""

    @property
    def width(self) -> int:
        return max(map(len, [self.head, *self.cells]))


def front_table(results: Results, wide: bool = False, colours: bool = False) -> str:
    """The front as a table; with `wide` all columns and whole plans, however long the lines
    become."""
    if not results.front:
        return "(none)"
    return _shown(_columns(results, wide), wide, colours)


def _columns(results: Results, wide: bool) -> list[Column]:
    return _wide(results) if wide else _narrow(results)


def _wide(results: Results) -> list[Column]:
    entries = results.front
    plans = Column("plan", [letters(g) for g in _groups(results)])
    drawn = columns([settings_of(e) for e in entries])
    return [*_first(entries), *(Column(*each) for each in drawn.items()), plans, *_numbers(results)]


def _narrow(results: Results) -> list[Column]:
    """The columns that fit the terminal. First columns that are no objective are left out, then the
    plan is shortened, then settings are left out, those of the network last."""
    entries, groups = results.front, _groups(results)
    told = varying([settings_of(e) for e in entries])
    settings = [Column(head, cells, SETTINGS) for head, cells in told.items()]
    # A plan that all points share is printed above the table.
    same = _shares_plan(results)
    plans = [[]] if same else [[Column("plan", [form(g) for g in groups])] for form in FORMS]
    first, last = _first(entries), _numbers(results)
    for kept in range(len(settings), -1, -1):
        for plan in plans:
            fitting = _fitting([*first, *settings[:kept], *plan, *last])
            if fitting is not None:
                return fitting
    return [c for c in [*first, *plans[-1], *last] if c.optional is None]


def _first(entries: list[Entry]) -> list[Column]:
    return [
        Column("trial", [e.id for e in entries]),
        Column("method", [shown(e.spec.method) for e in entries]),
    ]


def _groups(results: Results) -> list[list[str]]:
    """The letters of every point's plan, by stage."""
    return [by_stage(e.spec.plan, results.networks.stages(e.spec.task)) for e in results.front]


def _numbers(results: Results) -> list[Column]:
    """The columns of metrics, then the confidence, then the costs."""
    config, entries = results.config, results.front
    metrics = {m.name: m for m in config.kind.metrics}
    found = [
        Column(f"val {short(metrics[name])}", [_metric(e, metrics[name], results) for e in entries])
        for name in config.objectives
        if name in metrics
    ]
    sure = ["-" if e.confidence is None else f"{100 * e.confidence:.0f}" for e in entries]
    found.append(Column("sure", sure, optional=3))
    wanted = {name for name in config.objectives if name not in metrics}
    if "flops" in wanted:
        wanted = wanted - {"flops"} | {"flops_pct"}
    droppable = {"bytes": 0, "flops": 1, "flops_pct": 2}
    wanted |= {cost.name for cost in measured_costs() if all(cost.name in e.costs for e in entries)}
    for name in ("flops_pct", "flops", "bytes", *sorted(wanted - set(droppable))):
        cells = _costs([e.costs[name] for e in entries], name)
        optional = None if name in wanted else droppable.get(name)
        found.append(Column(COST_HEADS.get(name, name), cells, optional))
    latency = results.measured_ms
    if any(e.id in latency for e in entries):
        cells = [f"{latency[e.id]:.4g}" if e.id in latency else "-" for e in entries]
        found.append(Column(MEASURED_HEAD, cells))
    return found


def _metric(entry: Entry, metric: Metric, results: Results) -> str:
    """A metric of a point as text; the quality also has its spread over seeds."""
    if metric.name == results.config.quality.name:
        return measured(entry, metric)
    return metric.number(entry.metrics.get(metric.name))


def _costs(values: list[float], name: str) -> list[str]:
    if not name.endswith("_pct"):
        return list(map(count, values))
    # A small network may cost only a few percent of the dearest one.
    digits = 1 if min(values) >= 10 else 2
    return [f"{value:.{digits}f}" for value in values]


def _fitting(columns: list[Column]) -> list[Column] | None:
    """The columns that are left after leaving out as many optional ones, settings excepted, as
    needed to fit the terminal; None where that is not enough."""
    by_rank = sorted(
        (c for c in columns if c.optional is not None and c.optional < SETTINGS),
        key=lambda c: c.optional or 0,
    )
    kept = list(columns)
    for spare in [*by_rank, None]:
        if terminal.total_width([c.width for c in kept]) <= terminal.width():
            return kept
        kept = [c for c in kept if c is not spare]
    return None


def _shown(columns: list[Column], wide: bool, colours: bool) -> str:
    rows = list(zip(*(c.cells for c in columns), strict=True))
    plan = next((i for i, c in enumerate(columns) if c.head == "plan"), 1)
    paint = {plan: terminal.painted_plan} if colours and columns[plan].head == "plan" else {}
    # On a terminal too narrow even for these columns the plan, or else the method, is cut.
    flexible = -1 if wide else plan
    return terminal.table([c.head for c in columns], rows, flexible=flexible, paint=paint)


def front_summary(results: Results, wide: bool = False, colours: bool = False) -> str:
    """The table of the front, with the reference of the hypervolume and the meaning of the
    columns."""
    config = results.config
    reference = ", ".join(
        f"{name} {value:.4g}"
        for name, value in zip(config.objectives, results.reference, strict=True)
    )
    done = results.counts()[TrialState.COMPLETE]
    told = [
        f"hypervolume {100 * results.hypervolume_share:.2f} % of the box from the reference "
        f"({reference}) to a perfect, free network",
        *_meanings(results, wide),
    ]
    told += limits_in_words(config, results.points)
    if results.saving is not None:
        told.append(results.saving.sentence())
    head = f"Front of {config.name}: {len(results.front)} of {done} complete trials"
    lines = [head, *_shared(results, wide)]
    return "\n".join(
        [
            *map(_filled, lines),
            "",
            front_table(results, wide, colours),
            "",
            *map(_filled, told),
        ]
    )


def _meanings(results: Results, wide: bool) -> list[str]:
    """Sentences that explain the columns."""
    if not results.front:
        return []
    shown = {column.head for column in _columns(results, wide)}
    network = "full-precision network"
    if not results.one_network:
        network = "dearest full-precision network of the space"
    told = [f"flops %: of the {network}, {count(results.full_flops)} flops (MixBin convention)"]
    if "sure" in shown:
        told.append("sure: % probability that no other point is better and no dearer")
    if MEASURED_HEAD in shown and results.benched is not None:
        told.append(
            f"{MEASURED_HEAD}: per call of the packed network (random weights), "
            f"{results.benched.describe()}"
        )
    quality = results.config.quality
    if any(e.seeds > 1 for e in results.front):
        told.append(
            f"{short(quality)}: mean ± standard deviation over the point's own seeds (how many)"
        )
    repeated = [e.seeds for e in results.points if e.seeds > 1]
    if repeated:
        told.append(
            f"{several(sum(repeated) - len(repeated), 'trial')} repeated "
            f"{several(len(repeated), 'point')} with other seeds: a point counts with its mean, "
            "and one that was lucky at first may have left the front"
        )
    if results.seed_noise is not None:
        told.append(f"seed noise ± {quality.number(results.seed_noise)} over all points")
    settings = varying([settings_of(e) for e in results.front])
    missing = [head for head in settings if head not in shown]
    if missing:
        told.append(f"no room for {', '.join(missing)}: --wide shows them")
    return told


def _shares_plan(results: Results) -> bool:
    """Whether all points have the same plan and sampled settings distinguish them."""
    drawn = [settings_of(e) for e in results.front]
    return len({e.spec.plan for e in results.front}) == 1 and any(drawn)


def _shared(results: Results, wide: bool) -> list[str]:
    """Lines on what all points share and the table has no column for."""
    if wide or not results.front:
        return []
    found = []
    if _shares_plan(results):
        found.append(f"plan of all of them: {FORMS[1](_groups(results)[0])}")
    drawn = columns([settings_of(e) for e in results.front])
    same = {head: cells[0] for head, cells in drawn.items() if len(set(cells)) == 1}
    if same:
        found.append(f"all of them: {in_a_line(same)}")
    return found


def _filled(text: str) -> str:
    return terminal.filled(text, "")


def show_end(results: Results, complete: bool) -> None:
    """Print the end of a turn at a search: its front, failed trials and the next commands."""
    terminal.show("")
    if not complete:
        terminal.show("Interrupted: running trials keep their last checkpoint.")
    elif results.space_exhausted:
        terminal.show(exhausted_text(results))
    elif results.ended_by is not None:
        terminal.show(_filled(results.ended_by.sentence()))
    failures = results.failures()
    if failures:
        listed = ", ".join(f"{count} {reason}" for reason, count in failures.items())
        terminal.show(f"Failed trials: {listed} ({all_failures(results.config.name)})")
        for pattern in results.failing:
            terminal.show(_filled(f"  {pattern}"))
    terminal.show(front_summary(results, colours=terminal.coloured()))
    for sentence in results.told:
        terminal.show(_filled(sentence))
    terminal.show("")
    terminal.show(after_search(results))


def exhausted_text(results: Results) -> str:
    """The sentence for a search that ended because no new point was left, with the number of
    different trials where all were looked at."""
    count = results.different_trials
    if count is None:
        return (
            "No other point of the space that satisfies the limits was found in hundreds of tries; "
            "there may be some."
        )
    return f"All {count} different trials of the space that satisfy the limits have been tried."
