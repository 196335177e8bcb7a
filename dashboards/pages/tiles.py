"""A search at a glance: the numbers at the top of the report and of the live page and what is said
of its model, as text. Their HTML is made there."""

from __future__ import annotations

from bitfront.search.durations import duration
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.figure_data import MISSES
from bitfront.search.results.view import SearchView


def decided(view: SearchView) -> list[str]:
    """Sentences on what ended the search, what it may still expect, and how good its model is."""
    return [text for text in (view.ended_by, view.outlook, view.model_health) if text]


def tiles(view: SearchView) -> dict[str, str]:
    """State, trials, front, best quality, hypervolume and time of a search, by their titles."""
    counts = view.counts
    ended = counts[TrialState.COMPLETE] + counts[TrialState.STOPPED] + counts[TrialState.FAILED]
    best = [p.accuracy for p in view.points if MISSES not in p.extra]
    quality = (max if view.quality.maximize else min)(best, default=None)
    found = {
        "state": view.state,
        "trials": f"{ended} of {view.budget_of_trials}" if view.budget_of_trials else str(ended),
        "on the front": str(len(view.front)),
        f"best {view.quality.short}": view.quality.text(quality),
        "hypervolume": f"{100 * view.hypervolume_share:.2f} %",
        "time in training": duration(view.seconds),
    }
    if counts[TrialState.STOPPED]:
        found["stopped early"] = str(counts[TrialState.STOPPED])
    if counts[TrialState.PAUSED]:
        found["paused"] = str(counts[TrialState.PAUSED])
    if counts[TrialState.FAILED]:
        found["failed"] = str(counts[TrialState.FAILED])
    return found
