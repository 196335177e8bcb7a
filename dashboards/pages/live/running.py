"""What a running search does now, as components of the live page: time left, rate, nodes, and a
card with the growing curve of every running trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from bitfront.dashboards.figures.style import look
from bitfront.search.durations import duration
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView, TrialView

MOST_CARDS = 12
# The size of a curve in a card, in its own units.
WIDE, HIGH = 120, 34


def running_cards(view: SearchView) -> Any:
    """The line about the turn and the cards; nothing where no driver runs."""
    from dash import html

    if view.state != "running":
        return []
    running = [t for t in view.trials if t.state == TrialState.RUNNING]
    with_curves = [t for t in running if view.curve_of(t)]
    shown = [*with_curves, *(t for t in running if t not in with_curves)][:MOST_CARDS]
    more = f"and {len(running) - len(shown)} more" if len(running) > len(shown) else ""
    cards = html.Ul([_card(view, trial) for trial in shown], className="cards")
    return [
        html.H2("Now", className="now"),
        html.P(turn_in_words(view, len(running))),
        *([cards] if shown else []),
        *([html.P(more, className="faint")] if more else []),
    ]


def turn_in_words(view: SearchView, running: int) -> str:
    """How long it takes, how fast it goes and where, in a line."""
    turn = view.turn
    parts = [f"{running} running"]
    if turn is None:
        return parts[0]
    if turn.waits:
        parts.append(turn.waits)
    if turn.left is not None:
        parts.append(f"about {duration(turn.left)} left")
    if turn.per_hour is not None:
        parts.append(f"{turn.per_hour:,.0f} trials an hour")
    workers = {t: r.node for t, r in turn.running.items() if r.node}
    if len(turn.nodes) > 1 or turn.lost:
        busy = [sum(node == host for node in workers.values()) for host in turn.nodes]
        pairs = zip(turn.nodes, busy, strict=True)
        told = [f"{host}: {count}" if count else f"{host}: idle" for host, count in pairs]
        more = f" and {len(told) - 8} more" if len(told) > 8 else ""
        parts.append(f"{len(turn.nodes)} nodes ({', '.join(told[:8])}{more})")
    if turn.lost:
        parts.append(f"lost: {', '.join(turn.lost[:8])}")
    return " · ".join(parts)


def _card(view: SearchView, trial: TrialView) -> Any:
    from dash import html

    curve = view.curve_of(trial)
    epoch = curve[-1][0] if curve else 0
    value = view.quality.text(curve[-1][1]) if curve else "no epoch yet"
    node = view.turn.running[trial.id].node if view.turn and trial.id in view.turn.running else ""
    named: Any = {"data-trial": trial.id, "aria-label": f"show trial {trial.id}"}
    bar: Any = {"aria-label": f"epochs of {trial.id}"}
    told = f"epoch {epoch} of {trial.epochs}"
    several = view.turn is not None and len(view.turn.nodes) > 1
    return html.Li(
        [
            html.Div(
                [html.Button(trial.id, className="plain", **named), html.Strong(value)],
                className="ends",
            ),
            html.Img(src=sparkline(view, trial, curve), alt="", className="spark"),
            html.Progress(value=str(epoch), max=str(max(trial.epochs, 1)), **bar),
            html.Small(f"{trial.method}, {told}" + (f", on {node}" if several and node else "")),
        ]
    )


def sparkline(view: SearchView, trial: TrialView, curve: Sequence[tuple[int, float]]) -> str:
    """A curve as the address of a small picture; its left and right end are those of the whole
    training, its height that of the trials that have ended."""
    values = [v for _, v in curve]
    known = [p.accuracy for p in view.points] + values
    low, high = min(values, default=0.0), max(known, default=1.0)
    if not view.quality.maximize:
        low, high = min(known, default=0.0), max(values, default=1.0)
    room = high - low or 1.0
    points = [
        (WIDE * e / max(trial.epochs, 1), HIGH - 2 - (HIGH - 4) * (v - low) / room)
        for e, v in curve
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    colour = look(view.methods.index(trial.method))[0]
    end = f'<circle cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="2.5"/>' if points else ""
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" '
        f'fill="{colour}">'
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>{end}</svg>'
    )
    return f"data:image/svg+xml,{quote(svg)}"
