"""Searches beside the rows of their papers: a table for the terminal, a page over all of them. What
is compared is in `bitfront.search.results.paper`."""

from __future__ import annotations

import json
import shlex
import textwrap
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
from bitfront.trainables.papers import citation

PAGE = """\
# The papers' tables

Written by `{command}`; not edited.
A row is a setting: the trials that ran exactly it answer it, mean ± standard deviation over seeds,
or it is blank and says what is missing. What the marks mean is in
[yaml.md](../yaml.md#rows-of-a-paper). Most papers print numbers of a test set; ours are of the
validation part, of hard-binarized networks, where a metric does not say `test`.

The command beside a row runs that row with its seeds and shows it. First say where the data are:
`export BITFRONT_DATA=DIR` (`bitfront datasets` lists them, and how they are got). A search that has
not been run here may want days of a GPU: `bitfront preview NAME --rows LABEL` says what a row
costs, and `--set resources.gpus=1` gives each trial one. Times are of the processor, of one core,
for all seeds together; a pretraining that trials share is part of the first one, what a selector
trains before them is not counted. With the same versions, threads (`resources.cpus`) and kind of
processor a row comes out the same to the last digit; elsewhere sums are rounded otherwise, and it
differs as another seed does.
"""


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
    return "\n".join([PAGE.format(command=command), _overview(by_paper), *sections])


def _overview(by_paper: Mapping[str, Sequence[PaperComparison]]) -> str:
    """What has been run, a line for each search."""
    headers = ["search", "table", "rows answered", "data", "epochs", "seeds", "CPU time"]
    lines = ["## What has been run", ""]
    for title, group in by_paper.items():
        lines += [f"{title}:", "", _line(headers), _line(["---"] * len(headers))]
        for each in group:
            config, rows = each.ours.config, each.rows()
            seeds = {number["seeds"] for row in rows for number in row["numbers"][:1]} - {0}
            lines.append(
                _line(
                    [
                        f"[{config.name}](#{config.name})",
                        each.paper.table,
                        f"{sum(row['ours'] is not None for row in rows)} of {len(rows)}",
                        _data(config),
                        str(config.task.epochs),
                        " to ".join(map(str, sorted({min(seeds), max(seeds)}))) if seeds else "",
                        _time(cpu_seconds(each.ours.entries)),
                    ]
                )
            )
        lines.append("")
    return "\n".join(lines)


def _section(comparison: PaperComparison) -> str:
    ours = comparison.ours
    command = row_command(ours.config, as_is=not ours.entries)
    rows = comparison.rows()
    lines = [f"### {ours.config.name}", ""]
    heads = [*_heads(comparison), *_statements(comparison, rows)]
    lines += [line for head in heads for line in (head[:1].upper() + head[1:], "")]
    several = len(comparison.metrics) > 1
    headers = ["row", *(["metric"] if several else []), "paper", "ours", "seeds", "epochs"]
    timed = ["CPU time"] if ours.entries else []
    headers += ["data", *timed, "mark", "command"]
    lines += [_line(headers), _line(["---"] * len(headers))]
    data = _data(ours.config)
    for row in rows:
        for place, number in enumerate(row["numbers"]):
            metric = ours.config.kind.metric(number["metric"])
            _, printed, _, value, _, seeds, epochs, mark = _cells(row, number, metric)
            why = row["reason"] or row["missing"]
            told = "; ".join(part for part in (mark if mark != "-" else "", why) if part)
            label = row["paper"]["label"]
            run = "" if row["reason"] else f"`{command} --rows {shlex.quote(label)}`"
            first = [label if place == 0 else "", *([metric.name] if several else [])]
            time = _time((row["ours"] or {}).get("cpu_seconds")) if place == 0 else ""
            last = [*([time] if timed else []), told, run if place == 0 else ""]
            lines.append(_line([*first, printed, value, seeds, epochs, data, *last]))
    return "\n".join([*lines, ""])


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
    metric = comparison.ours.config.kind.metric(name)
    pairs = comparison.pairs(name)
    wrong = pairs.turned
    if not pairs.count:
        return ""
    text = (
        f"{pairs.count - len(wrong)} of {pairs.count} pairs of rows come as printed, "
        f"{pairs.clear} of them by more than chance between seeds"
    )
    clear = [each for each in wrong if each.clear]
    unclear = len(wrong) - len(clear)
    if clear:
        listed = (f"{e.higher} above {e.lower} by {metric.number(e.difference)}" for e in clear)
        text += "; the other way round: " + ", ".join(listed)
    if unclear:
        text += f"; the other way round, which may be chance: {unclear}"
    return text


def _time(seconds: float | None) -> str:
    """The processor's time of trials; empty where none was measured."""
    return "" if seconds is None else duration(seconds)


def _data(config: SearchConfig) -> str:
    count = train_examples(config)
    title = dataset_title(config.task.dataset)
    return title if count is None else f"{title}, {count:,}"


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
