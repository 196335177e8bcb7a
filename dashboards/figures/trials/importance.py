"""How much of the variance of the quality each setting explains: a bar per setting, the largest at
the top."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bitfront.dashboards.figures import FIGURES, Subject
from bitfront.dashboards.figures.style import (
    GRID,
    PALETTE,
    axis,
    canvas,
    framed,
    markup,
    noted,
    saved,
    titled,
    words,
)
from bitfront.search.results.importance import LEAST_TRIALS, importances
from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    import plotly.graph_objects as go

LABEL = "share of the importance, %"
EMPTY = "too few finished trials, or nothing that varies in all of them"
MOST_BARS = 20


def _bars(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    """(name, percent) of the largest shares and of the sum of all others; the largest last."""
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    shown, rest = ranked[:MOST_BARS], ranked[MOST_BARS:]
    if rest:
        shown.append((f"{len(rest)} others", sum(share for _, share in rest)))
    return [(name, 100 * share) for name, share in reversed(shown)]


def importance_figure(shares: Mapping[str, float], title: str) -> go.Figure:
    """The bars as a Plotly figure; `shares` add up to 1."""
    import plotly.graph_objects as go

    bars = _bars(shares)
    figure = go.Figure(
        go.Bar(
            x=[share for _, share in bars],
            y=[markup(name, 30) for name, _ in bars],
            orientation="h",
            marker_color=PALETTE[0],
            hovertemplate="%{y}: %{x:.1f} %<extra></extra>",
        )
    )
    if not bars:
        noted(figure, EMPTY)
    return framed(
        figure,
        title,
        height=140 + 22 * max(len(bars), 3),
        xaxis=axis(LABEL, rangemode="tozero"),
        yaxis=axis("", type="category"),
    )


def importance_image(
    shares: Mapping[str, float], quality: str, title: str, path: str | Path
) -> Path:
    """Write the bars as pdf, svg or png; the label of the axis names the quality."""
    bars = _bars(shares)
    figure, axes = canvas(7, 1.6 + 0.3 * max(len(bars), 3))
    axes.barh([name for name, _ in bars], [share for _, share in bars], color=PALETTE[0])
    axes.grid(axis="x", color=GRID)
    axes.set_xlabel(f"{LABEL}; for {quality}", **words())
    axes.set_ylabel("parameter", **words())
    titled(axes, title)
    return saved(figure, path)


@FIGURES.register
class ImportanceKind:
    """`bitfront figure --kind importance`."""

    name = "importance"
    doc = "how much of the variance of the quality each setting explains"

    @staticmethod
    def draw(subject: Subject, path: Path) -> None:
        """Write the importances of a search; a UserError where its trials are too few."""
        view = subject.view()
        shares = importances(view)
        if not shares:
            raise UserError(
                f"search '{view.name}' cannot tell what mattered: it needs {LEAST_TRIALS} complete "
                "trials, of different quality, that differ in something all of them have"
            )
        importance_image(shares, view.quality.label, subject.titled(view.title), path)
