"""Pictures of a search, written where people look: the report, the figures beside the ledger, one
figure for a paper. What they look like is in `dashboards`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bitfront.search.ledger import folder as home
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.results import Results
from bitfront.search.results.view import SearchReader, view_of
from bitfront.search.tracking.notes import REPORT, SMALL_FRONT
from bitfront.terminal import tables as terminal
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.files import replacing, write_atomically

if TYPE_CHECKING:
    from bitfront.dashboards.view import SearchView


# --- the verbs ----------------------------------------------------------------------------------


def report(args: Namespace) -> int:
    """`bitfront report NAME [NAME2]`."""
    from bitfront.dashboards.pages.report import comparison_html

    root = home.home(args.home)
    folders = [home.find(root, name) for name in args.searches]
    views = [SearchReader(folder).read() for folder in folders]
    if len(views) == 1:
        path = Path(args.output or folders[0].path / REPORT)
        write_atomically(path, report_of(views[0]))
    else:
        views = _comparable(views)
        names = "-".join(view.name for view in views)
        path = Path(args.output or folders[0].path / f"report-{names}.html")
        write_atomically(path, comparison_html(views))
    if args.json:
        terminal.show_json({"report": str(path)})
    else:
        terminal.show(f"wrote {path}")
    return 0


def figure(args: Namespace) -> int:
    """`bitfront figure NAME --kind KIND -o FILE`."""
    from bitfront.dashboards.figures.style import EXTENSIONS

    if args.kind not in KINDS:
        raise UserError(f"--kind {args.kind}: unknown, {did_you_mean(args.kind, KINDS)}")
    path = Path(args.output or f"{args.kind}.pdf")
    if path.suffix.lower().removeprefix(".") not in EXTENSIONS:
        raise UserError(f"-o {path}: a figure is written as {', '.join(EXTENSIONS)}, by its name")
    if not path.parent.is_dir():
        raise UserError(f"-o {path}: there is no folder {path.parent}")
    with replacing(path) as part:
        KINDS[args.kind](args, part)
    terminal.show(f"wrote {path}")
    return 0


def _front(args: Namespace, path: Path) -> None:
    from bitfront.dashboards.figures.front import front_image

    view = _view_with_front(args)
    front_image(view.points, _title(args, view), path, **view.labels)


def _layers(args: Namespace, path: Path) -> None:
    from bitfront.dashboards.figures.layers import layers_image

    view = _view_with_front(args)
    layers_image(view, _title(args, view), path)


def _hypervolume(args: Namespace, path: Path) -> None:
    from bitfront.dashboards.figures.hypervolume import hypervolume_image

    view = _view_with_front(args)
    hypervolume_image([view], _title(args, view), path)


def _importance(args: Namespace, path: Path) -> None:
    from bitfront.dashboards.figures.importance import importance_image
    from bitfront.search.results.importance import LEAST_TRIALS, importances

    view = _view_with_front(args)
    shares = importances(view)
    if not shares:
        raise UserError(
            f"search '{view.name}' cannot tell what mattered: it needs {LEAST_TRIALS} complete "
            "trials, of different quality, that differ in something all of them have"
        )
    importance_image(shares, view.quality.label, _title(args, view), path)


def _masks(args: Namespace, path: Path) -> None:
    """Of a packed checkpoint, or of the final trainings of a search."""
    from bitfront.dashboards.figures.pruning import mask_image, masks_image
    from bitfront.search.recipes.masks import pruned_masks

    checkpoint = _checkpoint(args)
    masks, title = pruned_masks(checkpoint)
    title = args.title if args.title is not None else title
    if args.layer is None:
        masks_image(masks, title, path)
        return
    if args.layer not in masks:
        hint = did_you_mean(args.layer, masks)
        raise UserError(f"--layer {args.layer}: no such pruned layer, {hint}")
    mask_image(masks[args.layer], f"{title}, {args.layer}", path)


KINDS: dict[str, Callable[[Namespace, Path], None]] = {
    "front": _front,
    "layers": _layers,
    "hypervolume": _hypervolume,
    "masks": _masks,
    "importance": _importance,
}


def _checkpoint(args: Namespace) -> Path:
    given = Path(args.search)
    if given.is_file():
        return given
    from bitfront.search.recipes.finals import final_trainings

    folder = home.find(home.home(args.home), args.search)
    kept = [Path(f.checkpoint) for f in final_trainings(folder) if Path(f.checkpoint).is_file()]
    if not kept:
        raise UserError(
            f"search '{folder.name}' has no masks: trials keep no weights, final trainings do",
            f"bitfront export {folder.name} --knee; bitfront train recipe.yaml; "
            "or give a packed checkpoint in place of the name",
        )
    return kept[-1]


def _view_with_front(args: Namespace) -> SearchView:
    view = SearchReader(home.find(home.home(args.home), args.search)).read()
    if not view.front:
        raise UserError(f"search '{view.name}' has no front yet: no trial is complete")
    return view


def _title(args: Namespace, view: SearchView) -> str:
    return view.title if args.title is None else args.title


def _comparable(views: list[SearchView]) -> list[SearchView]:
    """The searches with their objectives in the order of the first one."""
    first = views[0]
    names = [axis.name for axis in first.objectives]
    for view in views[1:]:
        if sorted(axis.name for axis in view.objectives) != sorted(names):
            both = (", ".join(a.name for a in v.objectives) for v in (first, view))
            raise UserError(
                f"'{first.name}' and '{view.name}' have different objectives: {' and '.join(both)}"
            )
    return [view.in_order(names) for view in views]


# --- what a search leaves in its folder -----------------------------------------------------------


def report_of(view: SearchView) -> str:
    from bitfront.dashboards.pages.report import report_html
    from bitfront.search.results.importance import importances

    return report_html(view, importances(view))


def write_figures(results: Results) -> dict[str, str | Path]:
    """report.html, front.html, front.png and front.csv beside the ledger, for the parent run;
    heatmap.* where a search asks which one part may be binary, pairs.* with more than two
    objectives, kept.* and curves.* where exponents of pruning are searched."""
    from bitfront.dashboards.figures.front import front_csv, front_html, front_image

    points = results.figure_points()
    labels = results.figure_labels()
    title = (
        f"{results.config.name}: {results.config.task.dataset}, {results.config.task.model.name}"
    )
    out = results.folder.path
    write_atomically(out / "front.html", front_html(points, title, **labels))
    write_atomically(out / "front.csv", front_csv(points, results.figure_quality.bare))
    with replacing(out / "front.png") as part:
        front_image(points, title, part, **labels)
    with replacing(out / SMALL_FRONT) as part:
        front_image(points, title, part, dpi=80, **labels)
    # The driver that writes this is about to leave.
    view = replace(view_of(results), state=results.state_without_driver)
    write_atomically(out / REPORT, report_of(view))
    names = [REPORT, "front.html", "front.png", SMALL_FRONT, "front.csv"]
    names += _write_heat_map(results, title)
    names += [*_write_pairs(results, title), *_write_pruning(results, title)]
    return {name: out / name for name in names}


def _write_pairs(results: Results, title: str) -> list[str]:
    from bitfront.dashboards.figures.pairs import pairs_html, pairs_png

    if len(results.config.objectives) < 3:
        return []
    points, labels = results.pair_points()
    out = results.folder.path
    write_atomically(out / "pairs.html", pairs_html(points, labels, title))
    with replacing(out / "pairs.png") as part:
        pairs_png(points, labels, title, part)
    return ["pairs.html", "pairs.png"]


def _write_pruning(results: Results, title: str) -> list[str]:
    """What layers keep and how trials learn, by exponent: of the trials of the highest rate, the
    best one of each p."""
    from bitfront.dashboards.figures.pruning import curves_csv, curves_png, kept_csv, kept_png
    from bitfront.trainables.cost import task_cost_table
    from bitfront.trainables.methods import build_method

    quality = results.figure_quality
    pruned = [
        e
        for e in results.entries
        if e.state == TrialState.COMPLETE
        and e.history
        and {"rate", "p"} <= set(e.spec.canonical().params)
    ]
    if not pruned:
        return []
    methods = [e.spec.canonical() for e in pruned]
    rate = max(float(spec.params["rate"]) for spec in methods)
    best: dict[float, Entry] = {}
    for entry, spec in zip(pruned, methods, strict=True):
        p = float(spec.params["p"])
        worse = p not in best or quality.better(
            entry.metrics[quality.name], best[p].metrics[quality.name]
        )
        if float(spec.params["rate"]) == rate and worse:
            best[p] = entry
    first = next(iter(best.values())).spec
    sizes = task_cost_table(first.task).sizes(first.plan)
    kept, curves = {}, {}
    for p in sorted(best):
        spec = best[p].spec
        kept[f"p {p:g}"] = build_method(spec.method, dict(spec.params)).kept(sizes) or sizes
        curves[f"p {p:g}"] = [row[quality.name] for row in best[p].history if quality.name in row]
    out, told = results.folder.path, f"{title}, r = {rate:g}"
    with replacing(out / "kept.png") as part:
        kept_png(kept, sizes, told, part)
    write_atomically(out / "kept.csv", kept_csv(kept, sizes))
    with replacing(out / "curves.png") as part:
        curves_png(curves, told, f"validation {quality.label}", part)
    write_atomically(out / "curves.csv", curves_csv(curves))
    return ["kept.png", "kept.csv", "curves.png", "curves.csv"]


def _write_heat_map(results: Results, title: str) -> list[str]:
    from bitfront.dashboards.figures.heatmap import Cell, heat_map_csv, heat_map_html, heat_map_png
    from bitfront.search.config.space import build_space
    from bitfront.spaces.space import OnlyPlan
    from bitfront.trainables.cost import task_cost_table

    plan = results.config.space.get("plan")
    if not isinstance(plan, dict) or "only" not in plan:
        return []
    space = build_space(results.config)
    assert isinstance(space.plan, OnlyPlan)
    table = task_cost_table(results.config.task)
    parts = space.plan.names(table)
    cells = [
        Cell(
            entry.spec.method,
            space.plan.chosen(table, entry.spec.plan),
            entry.metrics[results.figure_quality.name],
        )
        for entry in results.entries
        if entry.state == TrialState.COMPLETE and set(entry.spec.plan) != {"F"}
    ]
    label = f"the one {space.plan.per} that is binary ({space.plan.level})"
    out = results.folder.path
    shown = results.figure_labels()["accuracy_label"]
    page = heat_map_html(cells, parts, title, label, shown)
    write_atomically(out / "heatmap.html", page)
    write_atomically(out / "heatmap.csv", heat_map_csv(cells, parts))
    with replacing(out / "heatmap.png") as part:
        heat_map_png(cells, parts, title, label, part, shown)
    return ["heatmap.html", "heatmap.png", "heatmap.csv"]
