"""The states of searches as a table: trials, failures, best quality, hypervolume. They are read in
`bitfront.search.results`; the front of a search is in `summary`."""

from __future__ import annotations

from textwrap import indent

from bitfront.search.deciding.limits import limits_in_words
from bitfront.search.durations import duration
from bitfront.search.ledger.entry import training_seconds
from bitfront.search.ledger.states import ENDED, TrialState
from bitfront.search.results.results import Results
from bitfront.search.results.settings import in_a_line, settings_of
from bitfront.terminal import tables as terminal
from bitfront.terminal.next_commands import all_failures
from bitfront.terminal.tables import several
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import shown

STATUS_HEADERS = ["search", "state", "trials", "run", "failed", "best", "front", "hv %", "training"]
# Columns that are left out, in this order, where the table is too wide for the terminal.
STATUS_OPTIONAL = (3, 6, 8)


def status_row(results: Results) -> list[str]:
    """The cells of one search. `best` is the best mean over the seeds of a point, as in the front;
    trials that a dead driver left behind do not count as running."""
    s = results.status_json()
    trials = s["trials"]
    seconds = training_seconds(results.entries)
    spent = duration(seconds) if seconds else "-"
    done = sum(trials[state] for state in ENDED)
    return [
        s["search"],
        "waiting" if s["waits"] else s["state"],
        str(done) if s["budget"] is None else f"{done}/{s['budget']}",
        str(trials[TrialState.RUNNING]),
        str(trials[TrialState.FAILED]),
        results.config.quality.number(results.best, 1),
        str(s["front"]),
        terminal.percent(s["hypervolume_share"]),
        spent,
    ]


def failure_lines(results: Results, most: int = 3) -> list[str]:
    """Lines on failed trials: how many failed for which reason, what they have in common, the last
    ones with their messages, and the command that shows all."""
    failed = results.failed
    if not failed:
        return []
    listed = ", ".join(f"{n} {reason}" for reason, n in results.failures().items())
    lines = [f"{results.config.name}: failed trials: {listed}"]
    lines += [f"  {pattern}" for pattern in results.failing]
    lines += [f"  {entry.id} {entry.why}" for entry in failed[-most:]]
    more = f"{len(failed) - most} more, and tracebacks" if len(failed) > most else "tracebacks"
    lines.append(f"  {more}: {all_failures(results.config.name)}")
    return [terminal.shortened(line, terminal.width()) for line in lines]


def decision_lines(results: Results) -> list[str]:
    """Lines on what the search may still expect, what ended it, which trials are paused, and the
    limits that its points keep; those on the model where it is no better than a mean."""
    waits = results.folder.waits
    told = [] if waits is None else [waits]
    told += [] if results.ended_by is None else [results.ended_by.sentence()]
    if results.outlook is not None and results.ended_by is None:
        told.append(results.outlook.sentence())
    if results.counts()[TrialState.PAUSED] and results.saving is not None:
        told.append(f"{results.saving.sentence()}.")
    if results.model is not None and results.model.blind:
        told.append(results.model.sentence())
    told += limits_in_words(results.config, results.points)
    return [terminal.filled(f"{results.config.name}: {text}", "") for text in told]


def failures_text(results: Results) -> str:
    """Every failed trial with its settings, its message and its traceback."""
    parts = []
    for entry in results.failed:
        settings = in_a_line(settings_of(entry))
        tried = " ".join(filter(None, (shown(entry.spec.method), settings, entry.spec.plan)))
        told = entry.traceback or entry.message or "(no message)"
        parts.append(f"{entry.id}  {entry.failure}  {tried}\n{indent(told.rstrip(), '  ')}")
    head = f"{results.config.name}: {several(len(parts), 'failed trial')}"
    return "\n\n".join([head, *parts])


def status_table(
    found: list[tuple[str, Results | UserError]],
    colours: bool = False,
    places: list[tuple[str, str]] | None = None,
) -> str:
    """A table with a row per search. Below it stand the error of every search that cannot be read,
    and the failed trials of the others. `places` are home and owner of every one, on the head of a
    cluster that several people use."""
    dashes = ["-"] * (len(STATUS_HEADERS) - 2)
    rows = [
        [name, "broken", *dashes] if isinstance(each, UserError) else status_row(each)
        for name, each in found
    ]
    headers = STATUS_HEADERS
    if places is not None:
        headers = [*headers, "owner", "home"]
        rows = [[*row, owner, home] for row, (home, owner) in zip(rows, places, strict=True)]
    lines = [
        terminal.table(
            headers,
            rows,
            flexible=0 if terminal.bounded() else -1,
            optional=STATUS_OPTIONAL if terminal.bounded() else (),
            paint={1: terminal.painted_state} if colours else {},
        )
    ]
    for name, each in found:
        if isinstance(each, UserError):
            lines.append(terminal.filled(f"{name}: {each.message}", ""))
        else:
            lines += failure_lines(each)
            lines += decision_lines(each)
    return "\n".join(lines)
