"""The description of a search's parent run in MLflow: the front at a glance, in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from search.config import SearchConfig
from search.entry import Entry

MOST_ROWS = 25
# Stands for the id of the parent run, which the tracker knows.
RUN = "{parent run}"
# Where an MLflow server gives out a file of a run.
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
    """`picture`: the small front is among the files of the parent run."""
    counts = Counter(entry.state for entry in entries)
    told = ", ".join(f"{n} {state}" for state, n in counts.items()) or "none yet"
    grown = "" if hypervolume_share is None else f", hypervolume {100 * hypervolume_share:.2f} %"
    # MLflow shows the first lines, the rest after a click.
    lines = [
        f"**{config.name}**" + (f": {config.description}" if config.description else ""),
        "",
        f"Trials: {told} of {config.search.trials}; {len(front)} on the front{grown}. The whole "
        "story is the artifact `report.html`.",
        "",
        *([IMAGE, ""] if picture else []),
        *front_rows(front, config),
        "",
        "Runs of the front: filter the experiment by `tags.pareto = 'true'`; compare them by "
        f"`flops_pct` and `{config.quality.name}`.",
        "",
        *next_lines(config.name),
    ]
    return "\n".join(lines)


def front_rows(front: Sequence[Entry], config: SearchConfig) -> list[str]:
    """A table, cheapest first."""
    if not front:
        return ["No trial is complete yet."]
    quality = config.quality
    rows = [
        f"| trial | method | {quality.label}{quality.unit} | flops % | flops | seeds | plan |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for entry in front[:MOST_ROWS]:
        costs = entry.costs
        rows.append(
            f"| t{entry.number:04d} | {entry.spec.method} "
            f"| {quality.number(entry.metrics.get(quality.name))} | {costs['flops_pct']:.1f} "
            f"| {costs['flops']:,.0f} | {entry.seeds} | `{entry.spec.plan}` |"
        )
    if len(front) > MOST_ROWS:
        rows.append(f"\n{len(front) - MOST_ROWS} more in `front.csv`.")
    return rows


def next_lines(name: str) -> list[str]:
    return [
        "```",
        f"bitfront front {name} --plot",
        f"bitfront export {name} --budget 40%",
        "bitfront train recipe.yaml",
        "```",
    ]
