"""The description of a search's parent run in MLflow: its front as Markdown. mirror.py writes
it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.entry import Entry
from bitfront.search.results.settings import settings_of, varying
from bitfront.trainables import own_code
from bitfront.trainables.methods import METHODS
from bitfront.trainables.papers import paper_of

MOST_ROWS = 25
# Replaced by the id of the parent run, which the tracker knows.
RUN = "{parent run}"
# Replaced by the paths of ready views of the table of runs (`views.py`).
VIEWS = {"trials": "{view of trials}", "front": "{view of the front}"}
# Prefix of metrics of a point of the front: means over its seeds.
FRONT = "front_"
# Files of the parent run, and the address at which an MLflow server has them.
REPORT = "report.html"
SMALL_FRONT = "front-small.png"
IMAGE = f"![front](get-artifact?path={SMALL_FRONT}&run_uuid={RUN})"


def note_of(
    config: SearchConfig,
    entries: Iterable[Entry],
    front: Sequence[Entry],
    hypervolume_share: float | None,
    picture: bool = False,
) -> str:
    """The description, in Markdown. `picture` says that the parent run has the small front as a
    file."""
    counts = Counter(entry.state for entry in entries)
    states = ", ".join(f"{n} {state}" for state, n in counts.items()) or "none yet"
    grown = "" if hypervolume_share is None else f", hypervolume {100 * hypervolume_share:.2f} %"
    budget = f" of {config.search.trials}" if config.search.budget is not None else ""
    # MLflow shows the first lines at once, the others after a click.
    lines = [
        f"**{config.name}**" + (f": {config.description}" if config.description else ""),
        "",
        *paper_lines(config),
        f"Trials: {states}{budget}; {len(front)} on the front{grown}. The whole "
        "story is the artifact `report.html`.",
        "",
        *([IMAGE, ""] if picture else []),
        *front_rows(front, config),
        "",
        f"[Runs of the front]({VIEWS['front']}) and [all trials]({VIEWS['trials']}) as tables and "
        "as charts; elsewhere filter by `tags.pareto = 'true'`. Compare them by "
        f"`flops_pct` and `{FRONT}{config.quality.name}`, the mean over the seeds of a point as in "
        f"the table (`{config.quality.name}` is of one trial). Percentages are of the dearest "
        "network of the search in full precision.",
        "",
        *(next_lines(config.name) if front else []),
    ]
    return "\n".join(lines)


def paper_lines(config: SearchConfig) -> list[str]:
    """The paper that the search follows, and those of its methods, with links."""
    lines = []
    if config.paper is not None:
        told = _linked(config.paper.citation, config.paper.link)
        lines += [f"Follows {told}, {config.paper.table}.", ""]
    given = config.space.get("method", [])
    found = []
    for name in given if isinstance(given, list) else [given]:
        method = METHODS.find().get(str(name))  # no code of the user's own is run here
        paper = paper_of(method.paper) if method is not None and method.levels != "F" else None
        if paper is not None:
            found.append(f"`{name}`: {_linked(f'{paper.short}, {paper.place}', paper.link)}")
    return [*lines, f"Methods: {'; '.join(found)}.", ""] if found else lines


def _linked(text: str, link: str) -> str:
    return f"[{text}]({link})" if link else text


def front_rows(front: Sequence[Entry], config: SearchConfig) -> list[str]:
    """A Markdown table of the front, whose entries have means over seeds, cheapest first.
    Percentages are of the dearest network."""
    if not front:
        return ["No trial is complete yet."]
    quality, shown = config.quality, front[:MOST_ROWS]
    settings = varying([settings_of(entry) for entry in shown])
    heads = "".join(f" {head} |" for head in settings)
    rows = [
        f"| trial | method |{heads} mean {quality.label}{quality.unit} | seeds | flops % | flops "
        "| plan |",
        "|---|---|" + "--:|" * (len(settings) + 4) + "---|",
    ]
    for i, entry in enumerate(shown):
        costs = entry.costs
        cells = "".join(f" {column[i]} |" for column in settings.values())
        rows.append(
            f"| {entry.id} | {own_code.shown(entry.spec.method)} |{cells} "
            f"{quality.number(entry.metrics.get(quality.name))} | {entry.seeds} "
            f"| {costs['flops_pct']:.1f} | {costs['flops']:,.0f} | `{entry.spec.plan}` |"
        )
    if len(front) > MOST_ROWS:
        rows.append(f"\n{len(front) - MOST_ROWS} more in `front.csv`.")
    return rows


def next_lines(name: str) -> list[str]:
    """The commands to go on with."""
    return [
        "```",
        f"bitfront front {name} --plot",
        f"bitfront export {name} --budget 40%",
        "bitfront train recipe.yaml",
        "```",
    ]
