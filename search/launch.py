"""Starting and continuing a search: run, resume and extend are one path, because the ledger says
what is left to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from search import terminal
from search.config import MLFLOW_RUN, SearchConfig, from_source
from search.home import SearchFolder, stages_folder, write_atomically
from search.results import Results, stored_config
from search.study import Entry
from search.summary import front_summary, next_commands
from search.yaml_source import parse
from trainables.registry import UserError

# What may differ between two turns at the same search: how much, where and how it is shown.
# A checkpoint is known by its hash, not by where it lies.
MAY_CHANGE = (
    "search.trials",
    "resources",
    "tracking",
    "description",
    "task.data_dir",
    "task.pretrain.checkpoint",
    "task.loss.distill.teacher",
    "paper",
)


def fetched(config: SearchConfig, root: Path) -> SearchConfig:
    """The configuration with a checkpoint of an MLflow run as a file here, checked like one."""
    checkpoint = config.task.pretrain.checkpoint
    if checkpoint is None or not checkpoint.startswith(MLFLOW_RUN):
        return config
    from search.tracking import fetch_artifact, tracking_uri

    run = checkpoint.removeprefix(MLFLOW_RUN).partition("/")[0]
    folder = stages_folder(root) / "mlflow" / run
    path = fetch_artifact(checkpoint, tracking_uri(config, root), folder)
    return from_source(parse(config.dump(), "search.yaml"), [f"task.pretrain.checkpoint={path}"])


def prepare(config: SearchConfig, root: Path, ledger_url: str | None = None) -> SearchFolder:
    """The folder of the search, new or the same as before."""
    folder = SearchFolder(root / config.name)
    if folder.exists:
        stored = stored_config(folder)
        config.search.trials = max(config.search.trials, stored.search.trials)
        changed = differences(stored, config)
        if changed:
            raise UserError(
                f"search '{config.name}' exists with another configuration: {'; '.join(changed)}",
                f"give this one a name of its own: --name {config.name}-2",
            )
    folder.path.mkdir(parents=True, exist_ok=True)
    if ledger_url is not None and not folder.exists:
        folder.set_ledger_url(ledger_url)
    return folder


def differences(old: SearchConfig, new: SearchConfig) -> list[str]:
    """`key: old -> new` for every setting that makes another search of it."""
    before, after = (_flat(c.model_dump(mode="json")) for c in (old, new))
    found = []
    for key in sorted({*before, *after}):
        free = any(key == k or key.startswith(k + ".") for k in MAY_CHANGE)
        if not free and before.get(key) != after.get(key):
            found.append(f"{key}: {before.get(key)} -> {after.get(key)}")
    return found


def _flat(data: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(data, dict) or not data:
        return {prefix: data}
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def launch(
    config: SearchConfig,
    folder: SearchFolder,
    address: str | None,
    quiet: bool = False,
    warm_start: Results | None = None,
) -> int:
    """Run what the ledger says is left; print the front and what comes next. The exit code."""
    with folder.locked():
        write_atomically(folder.config_file, config.dump())
        (folder.path / "exhausted").unlink(missing_ok=True)
        complete = _drive(config, folder, address, quiet, warm_start)
    results = Results.of(folder)
    if not quiet:
        _conclude(results, complete)
    if not complete:
        return 130
    return 0 if results.front else 1


def _drive(
    config: SearchConfig,
    folder: SearchFolder,
    address: str | None,
    quiet: bool,
    warm_start: Results | None,
) -> bool:
    from search.driver import Session
    from search.selection import settle, start_points
    from search.space_config import build_space
    from search.tracking import Tracker
    from search.warm_start import carried_points
    from trainables.data import DATASETS, load_train

    tracker = None
    if config.tracking.enabled:
        tracker = Tracker(config, folder.identity, folder.path.parent)
    if not DATASETS.get(config.task.dataset).embedded:
        # A missing dataset is an error now, not the failure of every trial.
        load_train(config.task.dataset, config.task.data_dir, config.task.normalize)
    note = (lambda text: None) if quiet else terminal.show
    space = settle(config, build_space(config), folder, address, note)
    first = start_points(space)
    if warm_start is not None:
        first += carried_points(warm_start, space)
    session = Session(config, space, folder, tracker, quiet, first)
    left = config.search.trials - session.ended
    if tracker is not None:
        tracker.start(session.ledger.entries.values())
        tracker.front(set(session.front.keys))
    if not quiet:
        how = f"{session.ended} trials done, " if session.ended else ""
        terminal.show(f"search {config.name}: {how}{max(0, left)} to go, in {folder.path}")
        for line in starting_point(config):
            terminal.show(line)
    complete = False
    try:
        if left > 0 or session.ledger.interrupted():
            from search.tuner import run_trials

            run_trials(session, address)
        complete = session.complete
    except KeyboardInterrupt:
        complete = False
    finally:
        session.close()
        if tracker is not None:
            _close_tracker(tracker, folder, complete, quiet)
    return complete


def starting_point(config: SearchConfig) -> list[str]:
    """What trials that do not train end-to-end start from, and what that costs once."""
    from search.space_config import stage_epochs
    from trainables.pretraining import check_checkpoint

    lines = []
    if config.task.pretrain.checkpoint is not None:
        lines.append(check_checkpoint(config.task).text())
    epochs = stage_epochs(config)
    if epochs:
        told = " or ".join(str(n) for n in epochs)
        lines.append(f"trials start from {told} epochs in full precision, trained once and shared")
    return lines


def _close_tracker(tracker: Any, folder: SearchFolder, complete: bool, quiet: bool) -> None:
    results = Results.of(folder)
    artifacts = write_figures(results)
    problem = tracker.close(
        "complete" if complete else "interrupted", artifacts, summary_note(results)
    )
    if problem is not None and not quiet:
        terminal.show(
            f"MLflow at {tracker.uri} did not take everything: {problem}\n"
            f"  nothing is lost; to deliver it: bitfront resume {folder.name}"
        )


def write_figures(results: Results) -> dict[str, str | Path]:
    """front.html, front.png and front.csv beside the ledger, for the parent run, which takes the
    scores of selectors too; heatmap.* where a search asks which one part may be binary, pairs.*
    with more than two objectives, kept.* and curves.* where exponents of pruning are searched."""
    from dashboards.figures import front_csv, front_html, front_image
    from search.selection import selection_files

    points = results.figure_points()
    labels = results.figure_labels()
    title = (
        f"{results.config.name}: {results.config.task.dataset}, {results.config.task.model.name}"
    )
    out = results.folder.path
    (out / "front.html").write_text(front_html(points, title, **labels), encoding="utf-8")
    (out / "front.csv").write_text(front_csv(points, results.figure_quality.bare), encoding="utf-8")
    front_image(points, title, out / "front.png", **labels)
    names = ["front.html", "front.png", "front.csv", *_write_heat_map(results, title)]
    names += [*_write_pairs(results, title), *_write_pruning(results, title)]
    made = [out / name for name in names]
    return {path.name: path for path in [*made, *selection_files(out)]}


def _write_pairs(results: Results, title: str) -> list[str]:
    from dashboards.pairs import pairs_html, pairs_png

    if len(results.config.objectives) < 3:
        return []
    points, labels = results.pair_points()
    out = results.folder.path
    (out / "pairs.html").write_text(pairs_html(points, labels, title), encoding="utf-8")
    pairs_png(points, labels, title, out / "pairs.png")
    return ["pairs.html", "pairs.png"]


def _write_pruning(results: Results, title: str) -> list[str]:
    """What layers keep and how trials learn, by exponent: of the trials of the highest rate, the
    best one of each p."""
    from dashboards.pruning import curves_csv, curves_png, kept_csv, kept_png
    from trainables.cost import task_cost_table
    from trainables.methods import build_method

    quality = results.figure_quality
    pruned = [
        e
        for e in results.entries
        if e.state == "complete" and e.history and {"rate", "p"} <= set(e.spec.canonical().params)
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
    kept_png(kept, sizes, told, out / "kept.png")
    (out / "kept.csv").write_text(kept_csv(kept, sizes), encoding="utf-8")
    curves_png(curves, told, f"validation {quality.label}", out / "curves.png")
    (out / "curves.csv").write_text(curves_csv(curves), encoding="utf-8")
    return ["kept.png", "kept.csv", "curves.png", "curves.csv"]


def _write_heat_map(results: Results, title: str) -> list[str]:
    from dashboards.heatmap import Cell, heat_map_csv, heat_map_html, heat_map_png
    from search.space_config import build_space
    from spaces.space import OnlyPlan
    from trainables.cost import task_cost_table

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
        if entry.state == "complete" and set(entry.spec.plan) != {"F"}
    ]
    label = f"the one {space.plan.per} that is binary ({space.plan.level})"
    out = results.folder.path
    shown = results.figure_labels()["accuracy_label"]
    page = heat_map_html(cells, parts, title, label, shown)
    (out / "heatmap.html").write_text(page, encoding="utf-8")
    (out / "heatmap.csv").write_text(heat_map_csv(cells, parts), encoding="utf-8")
    heat_map_png(cells, parts, title, label, out / "heatmap.png", shown)
    return ["heatmap.html", "heatmap.png", "heatmap.csv"]


def summary_note(results: Results) -> str:
    """The parent run's description in the MLflow UI."""
    name = results.config.name
    return (
        f"{results.config.description}\n\n"
        f"```\n{front_summary(results)}\n```\n\n"
        "The front as a picture: artifacts front.html, front.png, front.csv. "
        "Its trials: filter with `tags.pareto = 'true'`.\n\n"
        f"```\nbitfront export {name} --budget 40%\nbitfront train recipe.yaml\n```\n"
    )


def _conclude(results: Results, complete: bool) -> None:
    terminal.show("")
    if not complete:
        terminal.show("Interrupted: running trials keep their last checkpoint.")
    elif results.space_exhausted:
        terminal.show("Every point of the space that satisfies the limits has been tried.")
    failures = results.failures()
    if failures:
        listed = ", ".join(f"{count} {reason}" for reason, count in failures.items())
        terminal.show(f"Failed trials: {listed} (bitfront status {results.config.name} --json)")
    terminal.show(front_summary(results, colours=terminal.coloured()))
    terminal.show("")
    terminal.show(next_commands(results))
