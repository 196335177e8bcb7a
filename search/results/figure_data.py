"""Results of a search as the data that figures are drawn from: points, labels of the axes, budgets.
What they look like is decided in `dashboards`."""

from __future__ import annotations

from dataclasses import replace

from bitfront.search.deciding.limits import misses_in_words
from bitfront.search.ledger.entry import Entry
from bitfront.search.results.labels import OWN_SHARE, metric_label
from bitfront.search.results.points import FrontPoint, Labels
from bitfront.search.results.results import Results
from bitfront.search.results.settings import settings_of, shown_settings
from bitfront.trainables import own_code
from bitfront.trainables.errors import UserError, did_you_mean

# The heading of the measured latency.
MEASURED_HEAD = "measured ms"
# The note on a point that misses a limit on what is measured.
MISSES = "misses"


def front_points(results: Results) -> list[FrontPoint]:
    """A point for every finished setting that has the quality shown in figures."""
    confidence = {entry.id: entry.confidence for entry in results.front}
    cost, quality = results.cost_name, results.figure_quality
    in_percent = results.in_percent
    shown = {cost, *(["flops_pct"] if in_percent else [])}
    shown |= {OWN_SHARE} if results.one_network else set()
    latency = results.measured_ms
    # Spreads are known of the metric that is optimized; a figure may show another one.
    spread_known = quality.name == results.config.quality.name
    return [
        FrontPoint(
            trial=e.id,
            method=own_code.shown(e.spec.method),
            plan=e.spec.plan,
            accuracy=e.metrics[quality.name],
            cost=e.costs[cost],
            cost_pct=e.costs["flops_pct"] if in_percent else None,
            on_front=e.id in confidence,
            extra={
                **{name: _plain(value) for name, value in e.costs.items() if name not in shown},
                **_missing(results, e),
                **_certainty(e, confidence.get(e.id, e.confidence)),
                **({MEASURED_HEAD: f"{latency[e.id]:.4g}"} if e.id in latency else {}),
            },
            settings=settings_of(e),
            drawn=shown_settings({k: v for k, v in e.drawn.items() if k != "method"}),
            seeds=e.seeds,
            spread=e.own_spread if spread_known else None,
        )
        for e in results.points
        if quality.name in e.metrics
    ]


def _missing(results: Results, point: Entry) -> dict[str, str]:
    """By how much the point misses limits on what is measured."""
    words = misses_in_words(results.config, point.metrics)
    return {MISSES: words} if words else {}


def _certainty(point: Entry, confidence: float | None) -> dict[str, str]:
    """The number of seeds and, of a point on the front, how sure it is to belong there."""
    found = {"seeds": str(point.seeds)}
    if confidence is not None:
        found["sure %"] = f"{100 * confidence:.0f}"
    return found


def _plain(value: float) -> str:
    """A whole number in full, another one in six digits."""
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"


def figure_labels(results: Results) -> Labels:
    """The words of the axes, and the budgets."""
    quality = results.figure_quality
    return {
        "accuracy_label": metric_label(quality),
        "cost_label": results.label_of(results.shown_cost),
        "share": quality.share,
        "maximize": quality.maximize,
        "budgets": budgets(results),
    }


def budgets(results: Results) -> list[tuple[str, float]]:
    """(name, value) of the limits on the cost of the figure's axis, in the unit of that axis."""
    shown = results.shown_cost
    found = []
    for name in dict.fromkeys((shown, results.cost_name)):
        limit = results.config.limits.get(name)
        if limit is None or limit.max is None or (name != shown and not results.entries):
            continue
        value = limit.max if name == shown else 100 * limit.max / results.full_flops
        found.append((f"limit: {name} {limit.max:g}", value))
    return found


def seen_by(results: Results, cost: str) -> Results:
    """The same trials with the front of quality and this cost, whatever the search optimized; a
    UserError where the trials do not have it."""
    if not results.entries:
        return results
    known = list(results.entries[0].costs)
    if any(cost not in entry.costs for entry in results.entries):
        raise UserError(
            f"trials of '{results.config.name}' have no cost {cost}, {did_you_mean(cost, known)}"
        )
    quality = results.config.quality
    objectives = {quality.name: results.config.objectives[quality.name], cost: "min"}
    config = results.config.model_copy(update={"objectives": objectives})
    entries = [
        replace(e, values=e.values and [e.metrics[quality.name], e.costs[cost]])
        for e in results.entries
    ]
    place = list(results.config.objectives).index(quality.name)
    worst = 1.1 * max(entry.costs[cost] for entry in entries)
    reference = [results.reference[place], worst]
    found = Results.from_entries(results.folder, config, entries, reference)
    found.networks, found.environment = results.networks, results.environment
    return found
