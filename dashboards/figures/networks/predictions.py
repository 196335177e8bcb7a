"""The predictions of a trial over its input space: a curve with a band for one input, maps of the
probability and of its spread for two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.figures.style import canvas, saved, titled, words
from bitfront.dashboards.pages.page import figure_page

if TYPE_CHECKING:
    import plotly.graph_objects as go

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"
SIGMAS = 2
IMAGE_DPI = 110


def predictions_figure(picture: dict[str, Any], title: str) -> go.Figure:
    """The predictions as a Plotly figure; `picture` comes from `trainables.training.pictures`."""
    figure = _curve(picture) if len(picture["axes"]) == 1 else _maps(picture)
    figure.update_layout(title=title, template="plotly_white", font={"size": 15})
    return figure


def predictions_html(picture: dict[str, Any], title: str) -> str:
    """The predictions as a page that works offline."""
    return figure_page(predictions_figure(picture, title), title, "predictions")


def _curve(picture: dict[str, Any]) -> go.Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    (x,) = picture["axes"]
    if "mean" in picture:
        pairs = list(zip(picture["mean"], picture["spread"], strict=True))
        upper = [m + SIGMAS * s for m, s in pairs]
        lower = [m - SIGMAS * s for m, s in pairs]
        figure.add_scatter(
            x=[*x, *reversed(x)],
            y=[*upper, *reversed(lower)],
            fill="toself",
            fillcolor="rgba(0, 114, 178, 0.2)",
            line={"width": 0},
            hoverinfo="skip",
            name=f"mean ± {SIGMAS} deviations over draws",
        )
        figure.add_scatter(x=x, y=picture["mean"], line={"color": BLUE}, name="mean over draws")
    figure.add_scatter(
        x=x, y=picture["mode"], line={"color": ORANGE, "dash": "dash"}, name="mode (sign)"
    )
    points = picture["points"]
    figure.add_scatter(
        x=[row[0] for row in points["x"]],
        y=points["y"],
        mode="markers",
        marker={"color": GREY, "size": 5},
        name="training points",
    )
    figure.update_xaxes(title="input")
    figure.update_yaxes(title="target, standardised")
    return figure


def _panels(picture: dict[str, Any]) -> list[tuple[str, list[float], tuple[float, float]]]:
    """(title, values, range) of every map; the second input varies fastest in the values."""
    if "mean" not in picture:
        return [("mode (sign): probability of the second class", picture["mode"], (0.0, 1.0))]
    return [
        ("mean over draws: probability of the second class", picture["mean"], (0.0, 1.0)),
        ("its standard deviation over draws", picture["spread"], (0.0, 0.5)),
    ]


def _maps(picture: dict[str, Any]) -> go.Figure:
    from plotly.subplots import make_subplots

    panels = _panels(picture)
    figure = make_subplots(cols=len(panels), subplot_titles=[name for name, _, _ in panels])
    first, second = picture["axes"]
    points = picture["points"]
    for column, (_, values, (low, high)) in enumerate(panels, 1):
        # The second input varies fastest in the values.
        rows = [values[i :: len(second)] for i in range(len(second))]
        figure.add_heatmap(
            x=first,
            y=second,
            z=rows,
            zmin=low,
            zmax=high,
            colorscale="Cividis",
            colorbar={"x": column / len(panels) - 0.03, "thickness": 12},
            row=1,
            col=column,
        )
        figure.add_scatter(
            x=[row[0] for row in points["x"]],
            y=[row[1] for row in points["x"]],
            mode="markers",
            marker={
                "color": [BLUE if label == 0 else ORANGE for label in points["y"]],
                "size": 6,
                "line": {"color": "white", "width": 1},
            },
            showlegend=False,
            row=1,
            col=column,
        )
        figure.update_xaxes(title="first input", row=1, col=column)
        figure.update_yaxes(title="second input", row=1, col=column)
    return figure


def predictions_image(picture: dict[str, Any], title: str, path: Path) -> Path:
    """Write the predictions as a small image."""
    if len(picture["axes"]) == 1:
        return _curve_image(picture, title, path)
    return _map_image(picture, title, path)


def _curve_image(picture: dict[str, Any], title: str, path: Path) -> Path:
    figure, axes = canvas(6, 4, IMAGE_DPI)
    (x,) = picture["axes"]
    if "mean" in picture:
        pairs = list(zip(picture["mean"], picture["spread"], strict=True))
        low, high = ([m + k * SIGMAS * s for m, s in pairs] for k in (-1, 1))
        band = f"mean ± {SIGMAS} deviations over draws"
        axes.fill_between(x, low, high, color=BLUE, alpha=0.2, linewidth=0, label=band)
        axes.plot(x, picture["mean"], color=BLUE, label="mean over draws")
    axes.plot(x, picture["mode"], "--", color=ORANGE, label="mode (sign)")
    points = picture["points"]
    axes.plot([row[0] for row in points["x"]], points["y"], ".", color=GREY, markersize=4)
    axes.set_xlabel("input", **words(11))
    axes.set_ylabel("target, standardised", **words(11))
    axes.legend(frameon=False, fontsize=9)
    titled(axes, title, 12)
    return saved(figure, path)


def _map_image(picture: dict[str, Any], title: str, path: Path) -> Path:
    panels = _panels(picture)
    figure, first = canvas(4.6 * len(panels), 4, IMAGE_DPI)
    first.remove()
    grid = figure.subplots(1, len(panels), squeeze=False)
    across, up = picture["axes"]
    points = picture["points"]
    colours = [BLUE if label == 0 else ORANGE for label in points["y"]]
    for axes, (name, values, (low, high)) in zip(grid.flat, panels, strict=True):
        rows = [values[i :: len(up)] for i in range(len(up))]
        mesh = axes.pcolormesh(across, up, rows, cmap="cividis", vmin=low, vmax=high)
        figure.colorbar(mesh, ax=axes)
        x, y = zip(*points["x"], strict=True)
        axes.scatter(x, y, s=10, c=colours, edgecolors="white", linewidths=0.4)
        axes.set_xlabel("first input", **words(11))
        axes.set_ylabel("second input", **words(11))
        titled(axes, name, 10)
    figure.suptitle(title, **words(12))
    return saved(figure, path)
