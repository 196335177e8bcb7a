"""Interactive figures of a search by kind, for notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.front.interactive import front_figure
from bitfront.dashboards.figures.networks.layers import layers_figure
from bitfront.dashboards.figures.trials.coordinates import coordinates_figure
from bitfront.dashboards.figures.trials.curves import curves_figure
from bitfront.dashboards.figures.trials.failures import failures_figure
from bitfront.dashboards.figures.trials.hypervolume import hypervolume_figure
from bitfront.dashboards.figures.trials.methods import methods_figure
from bitfront.dashboards.figures.trials.rungs import rungs_figure
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.reader import SearchReader
from bitfront.search.results.view import SearchView
from bitfront.trainables.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Draw = Callable[[SearchView, str], "Figure"]
KINDS: dict[str, Draw] = {
    "front": lambda view, title: front_figure(view.points, title, **view.labels),
    "hypervolume": lambda view, title: hypervolume_figure([view], title),
    "layers": layers_figure,
    "methods": methods_figure,
    "curves": curves_figure,
    "coordinates": coordinates_figure,
    "rungs": rungs_figure,
    "failures": failures_figure,
}


def interactive(folder: SearchFolder, kind: str) -> Figure:
    """The Plotly figure of that kind, of the search in this folder."""
    if kind not in KINDS:
        raise UserError(f"figure: unknown kind '{kind}', {did_you_mean(kind, KINDS)}")
    view = SearchReader(folder).read()
    if not view.front:
        raise UserError(f"search '{view.name}' has no front yet: no trial is complete")
    return KINDS[kind](view, view.name)
