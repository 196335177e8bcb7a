"""The report of several searches side by side, as one page. The picture of their fronts is in
`figures.front.overlay`."""

from __future__ import annotations

from collections.abc import Sequence

from bitfront.dashboards.figures.front.overlay import Overlay, overlay_figure
from bitfront.dashboards.figures.networks.layers import layers_figure
from bitfront.dashboards.figures.trials.hypervolume import hypervolume_figure
from bitfront.dashboards.pages.page import page, placed
from bitfront.dashboards.pages.panel import click_data
from bitfront.dashboards.pages.pieces import (
    caption,
    direction,
    escaped,
    panel,
    reproduction,
    section,
    table,
)
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView
from bitfront.trainables.errors import UserError


def comparable(views: Sequence[SearchView]) -> list[SearchView]:
    """The searches with their objectives in the order of the first one; a UserError where they have
    different ones."""
    first = views[0]
    names = [axis.name for axis in first.objectives]
    for view in views[1:]:
        if sorted(axis.name for axis in view.objectives) != sorted(names):
            both = (", ".join(a.name for a in v.objectives) for v in (first, view))
            raise UserError(
                f"'{first.name}' and '{view.name}' have different objectives: {' and '.join(both)}"
            )
    return [view.in_order(names) for view in views]


def comparison_html(views: Sequence[SearchView]) -> str:
    """The report of several searches with the same objectives, as a page."""
    overlay = Overlay(views)
    title = " and ".join(view.name for view in views)
    figure = overlay_figure(overlay, "")
    sections = [
        (
            "overlay",
            "Fronts over one another",
            caption(overlay.sentence() + " " + direction(views[0]))
            + placed(figure, "overlay")
            + panel()
            + _overlay_table(overlay),
        ),
        (
            "growth",
            "Hypervolume",
            placed(hypervolume_figure(views, "", "trials"), "over-trials")
            + placed(hypervolume_figure(views, "", "time"), "over-time")
            + caption("Each search against its own reference."),
        ),
        *(
            (
                f"plans-{i}",
                f"Layers along the front of {view.name}",
                placed(layers_figure(view, ""), f"layers-{i}"),
            )
            for i, view in enumerate(views)
        ),
        *(
            (f"yaml-{i}", f"How {view.name} was made", reproduction(view))
            for i, view in enumerate(views)
        ),
    ]
    body = f"<h1>{escaped(title)}</h1>\n" + "\n".join(section(*s) for s in sections)
    return page(f"{title} · bitfront report", body, click_data(views))


def _overlay_table(overlay: Overlay) -> str:
    headers = ["search", "trials", "front", "on the joint front", "hypervolume", "which"]
    rows = []
    for i, view in enumerate(overlay.views):
        joint = overlay.contributed(i)
        share = f"{100 * overlay.share(view):.2f} %"
        counts = [view.counts[TrialState.COMPLETE], len(view.front), len(joint)]
        rows.append([view.name, *counts, share, ", ".join(joint)])
    return table(headers, rows, wide={5})
