"""The hypervolume of the front after every trial and over time. It is computed in
`search.results.growth`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bitfront.dashboards.figures import FIGURES, Subject
from bitfront.dashboards.figures.style import (
    DASHES,
    GRID,
    PALETTE,
    axis,
    canvas,
    framed,
    noted,
    saved,
    titled,
    words,
)
from bitfront.search.results.view import HypervolumeStep, SearchView

if TYPE_CHECKING:
    import plotly.graph_objects as go

Over = Literal["trials", "time"]
LABEL = "hypervolume, % of the box"
EMPTY = "no finished trials yet"
# A curve with more corners looks the same in a larger file.
MOST_CORNERS = 2000
UNITS = ((2 * 3600.0, 3600.0, "hours"), (2 * 60.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))


def _unit(views: Sequence[SearchView]) -> tuple[float, str]:
    """(seconds, name) of the unit of the time axis."""
    longest = max((v.hypervolume[-1].seconds for v in views if v.hypervolume), default=0.0)
    return next((unit, name) for least, unit, name in UNITS if longest >= least)


def _corners(steps: Sequence[HypervolumeStep]) -> list[HypervolumeStep]:
    """The steps at which the hypervolume changed, and the last one."""
    kept = [s for before, s in zip([None, *steps], steps, strict=False)
            if before is None or s.share != before.share]  # fmt: skip
    kept = kept[:: 1 + len(kept) // MOST_CORNERS]
    return kept if not steps or kept[-1] is steps[-1] else [*kept, steps[-1]]


def _curve(
    view: SearchView, over: Over, unit: float
) -> tuple[list[float], list[float], list[HypervolumeStep]]:
    steps = _corners(view.hypervolume)
    x = [float(s.trials) if over == "trials" else s.seconds / unit for s in steps]
    return x, [100 * s.share for s in steps], steps


def _x_label(over: Over, name: str) -> str:
    return "ended trials" if over == "trials" else f"{name} since the first trial started"


def hypervolume_figure(views: Sequence[SearchView], title: str, over: Over = "trials") -> go.Figure:
    """A staircase per search, over trials or over time."""
    import plotly.graph_objects as go

    figure = go.Figure()
    unit, name = _unit(views)
    for i, view in enumerate(views):
        x, y, steps = _curve(view, over, unit)
        figure.add_scatter(
            x=x,
            y=y,
            mode="lines+markers" if len(x) <= 100 else "lines",
            name=view.name,
            line={
                "shape": "hv",
                "color": PALETTE[i % len(PALETTE)],
                "dash": DASHES[i % len(DASHES)],
            },
            marker={"size": 5},
            hovertext=[
                f"{100 * s.share:.2f} % after {s.trials} trials, {s.seconds / unit:.1f} {name}"
                for s in steps
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    if not any(view.hypervolume for view in views):
        noted(figure, EMPTY)
    return framed(
        figure,
        title,
        height=380,
        showlegend=len(views) > 1,
        xaxis=axis(_x_label(over, name), rangemode="tozero"),
        yaxis=axis(LABEL),
    )


def hypervolume_image(
    views: Sequence[SearchView], title: str, path: str | Path, over: Over = "trials"
) -> Path:
    """Write the staircases as pdf, svg or png, by the name of the file."""
    figure, axes = canvas(7, 4.4)
    unit, name = _unit(views)
    for i, view in enumerate(views):
        x, y, _ = _curve(view, over, unit)
        axes.step(
            x, y, where="post", color=PALETTE[i % len(PALETTE)], linestyle=("-", "--", ":")[i % 3],
            label=view.name, linewidth=1.8,
        )  # fmt: skip
    axes.grid(color=GRID)
    axes.set_xlabel(_x_label(over, name), **words())
    axes.set_ylabel(LABEL, **words())
    titled(axes, title)
    if len(views) > 1:
        axes.legend(frameon=False)
    return saved(figure, path)


@FIGURES.register
class HypervolumeKind:
    """`bitfront figure --kind hypervolume`."""

    name = "hypervolume"
    doc = "the hypervolume after every trial"

    @staticmethod
    def draw(subject: Subject, path: Path) -> None:
        """Write how the hypervolume of a search grew."""
        view = subject.view()
        hypervolume_image([view], subject.titled(view.title), path)
