"""Searches beside the rows of their papers: a table for the terminal, a page over all of them. What
is compared is in `bitfront.search.results.paper`."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bitfront.search.config.load import load
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.sections.paper import PaperSpec
from bitfront.search.config.source import read
from bitfront.search.durations import duration
from bitfront.search.results.agreement import Mark, Order
from bitfront.search.results.labels import OWN_SHARE
from bitfront.search.results.paper import (
    TESTED,
    PaperComparison,
    cpu_seconds,
    train_examples,
)
from bitfront.spaces.ready_made import searches
from bitfront.terminal.tables import filled, table, width
from bitfront.trainables.data import dataset_title
from bitfront.trainables.errors import UserError
from bitfront.trainables.metrics import Metric
from bitfront.trainables.own_code import shown
from bitfront.trainables.papers import citation, paper_of

PAGE = """\
# The papers' tables

The rows of the papers that are implemented here, each beside what a search of ours measured with
the row's setting, and the command that runs it. Written by `{command}`; not edited.
"""
REPEAT = """\
## How to read a row, and to run it

A row is a setting: the trials that ran exactly it answer it, mean ± standard deviation over seeds,
or it is blank and says what is missing. What the marks mean is in
[yaml.md](../yaml.md#rows-of-a-paper). Most papers print numbers of a test set; ours are of the
validation part, of hard-binarized networks, where a metric does not say `test`.

The command beside a row runs that row with its seeds and shows it. First say where the data are:
`export BITFRONT_DATA=DIR` (`bitfront datasets` lists them, and how they are got). A search that has
not been run here may want days of a GPU: `bitfront preview NAME --rows LABEL` says what a row
costs (trials and epochs without the data, hours with them), `--set resources.gpus=1` gives each
trial one. Times are of the processor, of one core, for all seeds together; a pretraining that
trials share is part of the first one, what a selector trains before them is not counted. With the
same versions, threads (`resources.cpus`) and kind of processor a row comes out the same to the last
digit; elsewhere sums are rounded otherwise, and it differs as another seed does.
"""
NONE_COMPARABLE = """\
**No number of ours below is comparable with a printed one**: all these runs are small, with fewer
examples and epochs, some with other data or a narrower network; above each table it says what
differs. What they can show is the order of rows.
"""
PAIRS = """\
Pairs are every two rows of a table that are printed with different numbers: how many come as
printed, how many of these clearly, by more than chance between seeds (Welch's t-test at 5 %), and
how many clearly do not.
"""
# Pairs that come the other way round, of which a sentence names so many.
NAMED = 8


def paper_text(comparison: PaperComparison, labels: Collection[str] | None = None) -> str:
    """Every row of the paper, or those with these labels, with our trials of its setting, and what
    both were trained on."""
    lines = [textwrap.fill(line, width(), subsequent_indent="  ") for line in _heads(comparison)]
    rows = comparison.rows()
    if labels is not None:
        rows = [row for row in rows if row["paper"]["label"] in labels]
    several = len(comparison.metrics) > 1
    headers = ["row", *(["metric"] if several else []), "flops %", "paper", "flops %", "ours"]
    headers += ["diff", "seeds", "epochs", "mark"]
    cells = []
    for row in rows:
        for place, number in enumerate(row["numbers"]):
            metric = comparison.ours.config.kind.metric(number["metric"])
            label = row["paper"]["label"] if place == 0 else ""
            cells.append([label, *([metric.name] if several else []), *_cells(row, number, metric)])
    flops = headers.index("flops %")
    optional = (flops, flops + 2, len(headers) - 2, flops + 4)
    lines += ["", table(headers, cells, flexible=0, optional=optional)]
    return "\n".join([*lines, *map(filled, _below(comparison, rows))])


def _heads(comparison: PaperComparison) -> list[str]:
    config, paper = comparison.ours.config, comparison.paper
    unit = ", %" if comparison.metric.share else ""
    epochs = f", {_epochs(paper.epochs)}" if paper.epochs else ""
    count = train_examples(config)
    examples = "" if count is None else f"{count:,} training examples, "
    link = f" ({paper.link})" if paper.link else ""
    heads = [
        f"paper: {paper.citation}{link}, {paper.table}: {paper.dataset}, {paper.model}{epochs}, "
        f"{paper.part}{unit}",
        f"ours: search {config.name}: {dataset_title(config.task.dataset)}, "
        f"{examples}{shown(config.task.model.name)}, "
        f"{_epochs(config.task.epochs)}, {paper.metric} (hard-binarized){unit}",
    ]
    return [*heads, f"note: {paper.note}"] if paper.note else heads


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"


def _cells(row: Mapping[str, Any], number: Mapping[str, Any], metric: Metric) -> list[str]:
    ours = row["ours"] or {}
    gap = metric.number(number["difference"])
    return [
        _cost(row["paper"]["flops_pct"]),
        _with_spread(number["paper"], number["paper_spread"], metric),
        _cost(ours.get(OWN_SHARE)),
        _with_spread(number["value"], number["spread"], metric),
        gap if gap.startswith("-") else f"+{gap}",
        str(number["seeds"]),
        str(ours.get("epochs", "-")),
        mark_text(number),
    ]


def _with_spread(value: float | None, spread: float | None, metric: Metric) -> str:
    return metric.number(value) + ("" if spread is None else f" ± {metric.number(spread)}")


def mark_text(number: Mapping[str, Any]) -> str:
    """The mark of a number; where it is not comparable, the order too."""
    mark, order = number["mark"], number["order"]
    if mark != Mark.NOT_COMPARABLE or order is None:
        return mark or "-"
    return f"{mark}, {'same' if order == Order.SAME else 'other'} order"


def _below(comparison: PaperComparison, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on what is not comparable and what is missing, below a table."""
    unlike = dict.fromkeys(text for row in rows for text in row["not_comparable"])
    lines = [f"not comparable: {'; '.join(unlike)}"] if unlike else []
    lines += _untested(comparison, rows)
    for row in rows:
        why = row["reason"] or row["missing"]
        if why:
            lines.append(f"{row['paper']['label']}: {why}")
    return lines


def _untested(comparison: PaperComparison, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How to get the numbers on the test set that are printed and that we do not have."""
    for row in rows:
        numbers = [n for n in row["numbers"] if n["metric"].startswith(TESTED)]
        if row["ours"] and any(n["value"] is None for n in numbers):
            keep = comparison.ours.config.task.keep
            best = " --keep best" if keep == "best" else ""
            export = (
                f"bitfront export {comparison.ours.config.name} --trial {row['ours']['trials'][0]}"
            )
            return [
                f"numbers on the test set are of final trainings, such as: {export} && bitfront "
                f"train recipe.yaml{best}"
            ]
    return []


def _cost(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


# --- the page over all searches -------------------------------------------------------------------


def papers_page(
    comparisons: Sequence[PaperComparison], command: str = "bitfront compare --paper --all"
) -> str:
    """A page in Markdown with a table for each search; `command` is what wrote it."""
    by_paper: dict[str, list[PaperComparison]] = {}
    for each in comparisons:
        by_paper.setdefault(each.paper.citation, []).append(each)
    sections = []
    for title, group in by_paper.items():
        sections += [f"## {title}\n", *map(_section, group)]
    return "\n".join([PAGE.format(command=command), *_overview(by_paper), *sections])


def _overview(by_paper: Mapping[str, Sequence[PaperComparison]]) -> list[str]:
    """What has been run and how it compares, then what has not, a line for each search."""
    run = [each for group in by_paper.values() for each in group if each.ours.entries]
    lines = ["## What has been run", "", *(_in_short(run) if run else ["Nothing yet."]), "", REPEAT]
    left = {t: [each for each in group if not each.ours.entries] for t, group in by_paper.items()}
    if any(left.values()):
        lines += ["## What has not been run", "", "A row without a command says why.", ""]
    for title, group in left.items():
        if group:
            headers = ["search", "table", "rows", "with a command", "data", "epochs", "seeds"]
            lines += [f"{title}:", "", *_header(headers), *map(_not_run, group), ""]
    return lines


def _in_short(run: Sequence[PaperComparison]) -> list[str]:
    """The searches that have been run: marks of their rows, and how many pairs of rows come in the
    printed order."""
    marks = {each.ours.config.name: _marks(each) for each in run}
    some = any(marked.keys() - {Mark.NOT_COMPARABLE} for marked in marks.values())
    lines = [PAIRS] if some else [NONE_COMPARABLE, PAIRS]
    headers = ["search", "table", "pairs as printed", "clearly so", "clearly not", "marks"]
    lines += _header([*headers, "rows answered", "seeds", "epochs", "data", "CPU time"])
    for each in run:
        config, rows, pairs = each.ours.config, each.rows(), each.pairs(each.paper.metric)
        seeds = {number["seeds"] for row in rows for number in row["numbers"][:1]} - {0}
        cells = [f"[{config.name}](#{config.name})", _table_of(each.paper)]
        cells.append(f"{pairs.count - len(pairs.turned)} of {pairs.count}" if pairs.count else "")
        clear = [pairs.clear, sum(pair.clear for pair in pairs.turned)]
        cells += map(str, clear) if pairs.count else ["", ""]
        cells.append(", ".join(f"{n} {mark}" for mark, n in marks[config.name].items()))
        cells.append(f"{sum(row['ours'] is not None for row in rows)} of {len(rows)}")
        cells.append(" to ".join(map(str, sorted({min(seeds), max(seeds)}))) if seeds else "")
        time = _time(cpu_seconds(each.ours.entries))
        lines.append(_line([*cells, str(config.task.epochs), _data(config), time]))
    turned = {each.ours.config.name: _turned(each, each.paper.metric) for each in run}
    told = [f"* [{name}](#{name}): {', '.join(pairs)}" for name, pairs in turned.items() if pairs]
    return [*lines, "", "Clearly the other way round:", "", *told] if told else lines


def _marks(comparison: PaperComparison) -> Counter[str]:
    """How often each mark is there."""
    numbers = (number for row in comparison.rows() for number in row["numbers"])
    return Counter(number["mark"] for number in numbers if number["mark"])


def _table_of(paper: PaperSpec) -> str:
    """The table with what the paper is called, in short."""
    known = paper_of(paper.title)
    return f"{known.short}, {paper.table}" if known and known.short else paper.table


def _not_run(comparison: PaperComparison) -> str:
    config, rows = comparison.ours.config, comparison.paper.rows
    name = f"[{config.name}](#{config.name})"
    runnable = str(sum(not row.reason for row in rows))
    cells = [name, comparison.paper.table, str(len(rows)), runnable, _data(config)]
    return _line([*cells, str(config.task.epochs), str(comparison.paper.seeds)])


def _section(comparison: PaperComparison) -> str:
    """A search with its table: ours beside the printed numbers, or, where nothing has been run,
    the printed numbers and the commands."""
    ours = comparison.ours
    command = row_command(ours.config, as_is=not ours.entries)
    rows = comparison.rows()
    lines = [f"### {ours.config.name}", ""]
    heads = [*_heads(comparison), *_statements(comparison, rows)]
    lines += [line for head in heads for line in (head[:1].upper() + head[1:], "")]
    several = len(comparison.metrics) > 1
    headers = ["row", *(["metric"] if several else []), "paper"]
    if ours.entries:
        headers += ["ours", "seeds", "epochs", "data", "CPU time", "mark"]
    lines += _header([*headers, "command"])
    for row in rows:
        for place, number in enumerate(row["numbers"]):
            metric = ours.config.kind.metric(number["metric"])
            label = row["paper"]["label"]
            first = [label if place == 0 else "", *([metric.name] if several else [])]
            run = f"`{command} --rows {shlex.quote(label)}`" if place == 0 else ""
            if row["reason"]:
                run = f"none: {row['reason']}" if place == 0 else ""
            lines.append(_line([*first, *_of_page(comparison, row, number, place == 0), run]))
    return "\n".join([*lines, ""])


def _of_page(
    comparison: PaperComparison, row: Mapping[str, Any], number: Mapping[str, Any], first: bool
) -> list[str]:
    """The cells of a number: the printed one and, where the search has been run, ours."""
    config = comparison.ours.config
    metric = config.kind.metric(number["metric"])
    _, printed, _, value, _, seeds, epochs, mark = _cells(row, number, metric)
    if not comparison.ours.entries:
        return [printed]
    told = "; ".join(part for part in (mark if mark != "-" else "", row["missing"]) if part)
    time = _time((row["ours"] or {}).get("cpu_seconds")) if first else ""
    return [printed, value, seeds, epochs, _data(config), time, told]


def _statements(comparison: PaperComparison, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences above a table: what is not comparable, what it took, whether the order holds."""
    unlike = dict.fromkeys(text for row in rows for text in row["not_comparable"])
    found = [f"not comparable: {'; '.join(unlike)}"] if unlike else []
    time = _time(cpu_seconds(comparison.ours.entries))
    if time:
        versions = comparison.ours.environment
        stack = f", torch {versions['version.torch']}" if "version.torch" in versions else ""
        count = len(comparison.ours.entries)
        found.append(f"time: {time} of one core for {count} trials{stack}")
    several = len(comparison.metrics) > 1
    for name in comparison.metrics:
        told = order_text(comparison, name)
        if told:
            found.append(f"order{f' of {name}' if several else ''}: {told}")
    return [*found, *_untested(comparison, rows)]


def order_text(comparison: PaperComparison, name: str) -> str:
    """How many pairs of rows come in the printed order, and which clearly do not."""
    pairs = comparison.pairs(name)
    if not pairs.count:
        return ""
    text = (
        f"{pairs.count - len(pairs.turned)} of {pairs.count} pairs of rows come as printed, "
        f"{pairs.clear} of them by more than chance between seeds"
    )
    clear = _turned(comparison, name)
    unclear = sum(not pair.clear for pair in pairs.turned)
    text += f"; the other way round: {', '.join(clear)}" if clear else ""
    return text + (f"; the other way round, which may be chance: {unclear}" if unclear else "")


def _turned(comparison: PaperComparison, name: str) -> list[str]:
    """The pairs of rows that clearly come the other way round than printed, the clearest first."""
    metric = comparison.ours.config.kind.metric(name)
    unit = " points" if metric.share else ""
    found = [
        f"{pair.higher} above {pair.lower} by {metric.number(pair.difference)}{unit}"
        for pair in comparison.pairs(name).turned
        if pair.clear
    ]
    left = len(found) - NAMED
    return [*found[:NAMED], f"and {left} more"] if left > 0 else found


def _time(seconds: float | None) -> str:
    """The processor's time of trials; empty where none was measured."""
    return "" if seconds is None else duration(seconds)


def _data(config: SearchConfig) -> str:
    count = train_examples(config)
    title = dataset_title(config.task.dataset)
    return title if count is None else f"{title}, {count:,}"


def _header(cells: Sequence[str]) -> list[str]:
    return [_line(cells), _line(["---"] * len(cells))]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def row_command(config: SearchConfig, as_is: bool = False) -> str:
    """The command that runs this search, with what was changed of a ready-made one; a label of a
    row is to follow. `as_is`: it is known to be as its YAML, which need not be read again."""
    if as_is:
        return f"bitfront run {config.name}"
    from bitfront.search.session.preparation import changes  # torch

    found = _ready_made(config)
    if found is None:
        return f"bitfront run {shlex.quote(config.name)}.yaml"
    name, base = found
    words = ["bitfront", "run", name]
    for key, (_, now) in changes(base, config).items():
        if key == "name":
            words += ["--name", shlex.quote(str(now))]
        else:
            value = now if isinstance(now, str) else json.dumps(now)  # which is YAML too
            words += ["--set", shlex.quote(f"{key}={value}")]
    return " ".join(words)


def _ready_made(config: SearchConfig) -> tuple[str, SearchConfig] | None:
    """The ready-made search that this one is or was made of: it has its name, or its rows."""
    paths = searches()
    names = [config.name] if config.name in paths else []
    for name in [*names, *paths]:
        try:
            # A look at the text first: checking all searches with their networks takes a minute.
            if name in names or _table(read(paths[name]).data.get("paper")) == _table(config.paper):
                return name, load(paths[name])[0]
        except UserError:  # of a machine that has other files
            continue
    return None


def _table(paper: Any) -> Any:
    """What tells the tables of papers apart; `paper` is a section of a YAML, or as it was read."""
    data = paper.model_dump() if isinstance(paper, PaperSpec) else paper
    if not isinstance(data, dict):
        return None
    return (
        citation(str(data.get("title"))),
        data.get("table"),
        [row.get("label") for row in data.get("rows", [])],
    )
