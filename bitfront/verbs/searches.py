"""The verbs about searches: what each prints and returns. Parsing is in `cli`."""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.search.ledger import folder as home
from bitfront.search.session.interrupts import acknowledged
from bitfront.search.session.status_line import StatusLine
from bitfront.spaces.ready_made import search_file
from bitfront.terminal import tables as terminal
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import refuse_link
from bitfront.trainables.text_files import whole_path

if TYPE_CHECKING:
    from bitfront.search.config.schema import SearchConfig
    from bitfront.search.ledger.entry import Entry
    from bitfront.search.ledger.folder import SearchFolder
    from bitfront.search.recipes.recipe import FinalResult, Recipe
    from bitfront.search.results.results import Results
    from bitfront.spaces.space import Space

# How long a driver may take to end.
STOP_SECONDS = 120.0


def _loaded(args: Namespace) -> tuple[SearchConfig, Space]:
    from bitfront.search.config.load import load

    assignments = list(args.set or [])
    if args.data_dir:
        assignments.append(f"task.data_dir={whole_path(args.data_dir)}")
    if args.trials is not None:
        assignments.append(f"search.trials={args.trials}")
    return load(search_file(args.search), assignments, args.name)


def _caution(config: SearchConfig, space: Space) -> None:
    """What the user may not have meant, on standard error: output for machines stays as it is."""
    from bitfront.search.config.cautions import cautions

    for text in cautions(config, space):
        print(terminal.filled(f"warning: {text}"), file=sys.stderr, flush=True)


def _results(args: Namespace, name: str | None = None) -> Results:
    from bitfront.search.results.results import Results

    return Results.of(home.find(home.home(args.home), name or args.search))


@contextmanager
def _status_line(args: Namespace) -> Iterator[StatusLine]:
    """Says what is being done from now on, and answers a ctrl-C at once."""
    with StatusLine(args.quiet) as line, acknowledged(line.interrupted):
        line.wait(f"reading {args.search}")
        yield line


def run(args: Namespace) -> int:
    if args.dry_run:
        return preview(args)
    with _status_line(args) as line:
        from bitfront.verbs.launch import check_start, fetched, launch, prepare

        config, space = _loaded(args)
        _caution(config, space)
        warm = _results(args, args.warm_start) if args.warm_start else None
        root = home.home(args.home)
        if warm is not None and not warm.front:
            raise UserError(f"search '{warm.config.name}' has no front to start from")
        if warm is not None and warm.folder.path == root / config.name:
            raise UserError(f"--warm-start {args.warm_start}: a search cannot start from itself")
        config, space = fetched(config, space, root)
        check_start(config, args.address, line)
        folder = prepare(config, root, args.ledger or os.environ.get(home.LEDGER) or None)
        return launch(config, space, folder, args.address, args.quiet, warm, line)


def resume(args: Namespace) -> int:
    with _status_line(args) as line:
        from bitfront.search.results.results import config_to_continue

        folder = home.find(home.home(args.home), args.search)
        return _continue(config_to_continue(folder), folder, args, line)


def _continue(config: SearchConfig, folder: SearchFolder, args: Namespace, line: StatusLine) -> int:
    from bitfront.search.config.load import load_text
    from bitfront.verbs.launch import check_places, check_start, launch

    config, space = load_text(config.dump())  # checked as if it were read from its file
    check_places(config, folder)
    check_start(config, args.address, line)
    return launch(config, space, folder, args.address, args.quiet, line=line)


def extend(args: Namespace) -> int:
    from bitfront.search.results.results import config_to_continue

    folder = home.find(home.home(args.home), args.search)
    config = config_to_continue(folder)
    text = str(args.trials)
    try:
        amount = int(text)
    except ValueError:
        raise UserError(f"--trials {text}: give +N for N more trials, or a new total") from None
    total = config.search.trials + amount if text.startswith("+") else amount
    if total <= config.search.trials:
        raise UserError(
            f"--trials {text}: the search has a budget of {config.search.trials} already",
            "write +N for N more",
        )
    config.search.trials = total
    with _status_line(args) as line:
        return _continue(config, folder, args, line)


def validate(args: Namespace) -> int:
    config, space = _loaded(args)
    _caution(config, space)
    if args.json:
        terminal.show_json({"valid": True, "config": config.open_data()})
    else:
        terminal.say(f"{args.search}: valid, search '{config.name}'")
    return 0


def preview(args: Namespace) -> int:
    from bitfront.search.session.preview import preview_search

    config, space = _loaded(args)
    _caution(config, space)
    rehearsed = getattr(args, "rehearse", False)  # `run --dry-run` has no such option
    report = preview_search(config, space, timed=not rehearsed)
    if rehearsed:
        from bitfront.search.session.rehearsal import rehearse, telling_of

        with telling_of(config.search.trials) as ended:
            report.rehearsal = rehearse(config, space, ended=ended)
    if args.json:
        terminal.show_json(report.as_json())
    else:
        terminal.show(report.text())
    return 0


def status(args: Namespace) -> int:
    from bitfront.terminal.summary import status_table

    root = home.home(args.home)
    folders = [home.find(root, n) for n in args.searches] or home.list_searches(root)
    found = [(folder.name, *_told(folder)) for folder in folders]
    if args.json:
        reports = [report for _, _, report in found]
        terminal.show_json(reports[0] if len(args.searches) == 1 else reports)
    elif found:
        shown = [(name, each) for name, each, _ in found]
        terminal.show(status_table(shown, terminal.coloured()))
    else:
        terminal.show(f"no search has been run in {root}; start one: bitfront run")
    return int(any(isinstance(each, UserError) for _, each, _ in found))


def _told(folder: home.SearchFolder) -> tuple[Results | UserError, dict[str, Any]]:
    """A search and its report. One that is damaged costs the others nothing."""
    from bitfront.search.results.results import Results

    try:
        results = Results.of(folder)
        return results, results.status_json()
    except UserError as error:
        told = error
    except Exception as error:  # whatever is in a folder, the others are worth a look
        reason = (str(error).splitlines() or [""])[0]
        told = UserError(f"{folder.path}: damaged: {type(error).__name__}: {reason}")
    return told, {"search": folder.name, "error": told.message}


def stop(args: Namespace) -> int:
    """Ask the driver to end as ctrl-C would, and wait until it has."""
    folder = home.find(home.home(args.home), args.search)
    driver = folder.driver
    if driver is not None:
        host, pid = driver
        if host != socket.gethostname():
            raise UserError(f"search '{folder.name}' runs on {host}", "stop it there")
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while folder.running and time.monotonic() < deadline:
            time.sleep(0.2)
    state = "running" if folder.running else "stopped" if driver else "not running"
    if args.json:
        terminal.show_json({"search": folder.name, "state": state})
    elif not folder.exists:
        terminal.show(f"search '{folder.name}' had no trial yet: nothing of it is left")
    elif state == "running":
        terminal.show(f"search '{folder.name}' still runs: it ends with the epochs under way")
    else:
        terminal.show(f"search '{folder.name}' is {state}; continue: bitfront resume {folder.name}")
    return 1 if state == "running" else 0


def front(args: Namespace) -> int:
    results = _results(args)
    if args.json:
        terminal.show_json(results.as_json())
    elif args.csv:
        from bitfront.dashboards.figures.front import front_csv

        quality = results.figure_quality.bare
        sys.stdout.write(front_csv(results.figure_points(), quality))
    else:
        from bitfront.terminal.summary import front_summary

        terminal.show(front_summary(results, args.wide, terminal.coloured()))
        if args.plot:
            terminal.show("\n" + _plot(results))
    return 0


def _plot(results: Results) -> str:
    from bitfront.dashboards.figures.front import front_text

    width = min(100, terminal.width())
    return front_text(results.figure_points(), width, **results.figure_labels())


def compare(args: Namespace) -> int:
    from bitfront.search.results.comparison import Comparison
    from bitfront.search.results.paper import PaperComparison

    if args.paper == (args.b is not None):
        raise UserError("compare with what? give a second search, or --paper alone")
    ours = _results(args, args.a)
    comparison = PaperComparison(ours) if args.paper else Comparison(ours, _results(args, args.b))
    if args.json:
        terminal.show_json(comparison.as_json())
    else:
        terminal.show(comparison.text())
    return 0


def export(args: Namespace) -> int:
    from bitfront.search.recipes.recipe import may_save, recipe_of, save_beside

    results = _results(args)
    if not results.front:
        raise UserError(f"search '{results.config.name}' has no complete trial yet")
    seeds = list(range(args.seeds))
    if args.all:
        out = Path(args.output or "recipes")
        for entry in results.front:
            recipe = recipe_of(results, entry, args.epochs, seeds)
            usual = out / f"{results.config.name}-{entry.id}.yaml"
            path = save_beside(recipe, usual, args.force)
            if path != usual:
                terminal.say(f"{usual} has other content and stays as it is: wrote {path}")
        terminal.show(f"{len(results.front)} recipes in {out}")
        return 0
    entry = _chosen(results, args)
    recipe = recipe_of(results, entry, args.epochs, seeds)
    usual = Path(args.output or "recipe.yaml")
    if args.output and not args.force and not may_save(recipe, usual):
        raise UserError(
            f"{usual} is there and has other content; it is not overwritten",
            "another name, or --force to replace it",
        )
    path = save_beside(recipe, usual, args.force)
    if path != usual:
        terminal.show(f"{usual} has other content and stays as it is")
    quality = results.config.quality
    terminal.say(
        f"{path}: trial {entry.id}, {_named(entry)}\n"
        f"  {terminal.expectation(entry, quality, results.seed_noise)}\n"
        f"  {terminal.count(entry.costs['flops'])} flops "
        f"({entry.costs['flops_pct']:.1f} % of the dearest network in full precision)\n"
        f"  bitfront train {path}"
    )
    return 0


def _named(entry: Entry) -> str:
    """A point by all that was chosen for it."""
    from bitfront.search.results.settings import in_a_line, settings_of

    return " ".join(
        filter(None, (entry.spec.method, in_a_line(settings_of(entry)), entry.spec.plan))
    )


def _chosen(results: Results, args: Namespace) -> Entry:
    """The front point the options ask for."""
    from bitfront.search.front import best_under_budget, cheapest_reaching, knee
    from bitfront.search.session.repeats import cautious

    objectives = results.config.front_objectives
    if args.trial:
        return results.find(args.trial)
    if args.budget:
        cost, budget = _budget(args.budget, results.cost_name)
        _, both = results.quality_and(cost)
        points = [[cautious(e, results.config.quality), e.costs[cost]] for e in results.front]
        index = best_under_budget(points, both, budget)
        if index is None:
            cheapest = min(e.costs[cost] for e in results.front)
            raise UserError(
                f"no point of the front has {cost} <= {budget:g}; the cheapest has {cheapest:.4g}",
                _meant_percent(cost, budget),
            )
        return results.front[index]
    if args.min_accuracy:
        text = args.min_accuracy
        wanted = _number(text.rstrip("%"), "--min-accuracy")
        wanted = wanted / 100 if text.endswith("%") or wanted > 1 else wanted
        cost, quality = results.cost_name, results.config.quality
        if not quality.share:
            raise UserError(f"--min-accuracy is a share, this search is for {quality.label}")
        points, both = results.quality_and(cost)
        index = cheapest_reaching(points, both, wanted)
        if index is None:
            best = quality.text(max(point[0] for point in points))
            raise UserError(
                f"no point of the front reaches {100 * wanted:g} %; the best has {best}"
            )
        return results.front[index]
    if args.knee:
        return results.front[knee(results.front_values, objectives)]
    raise UserError("which point? give --budget, --min-accuracy, --knee, --trial or --all")


def _budget(text: str, cost: str) -> tuple[str, float]:
    """(cost, most of it) of `40%` or of a count of that cost."""
    if not text.endswith("%"):
        return cost, _number(text, "--budget")
    share = _number(text.removesuffix("%"), "--budget")
    if not 0 < share <= 100:
        raise UserError(
            f"--budget {text}: percentages are of the dearest network of the search in full "
            "precision, which costs 100 %",
            f"did you mean {share - 100:g}%?" if 100 < share < 200 else "for example --budget 40%",
        )
    return "flops_pct", share


def _meant_percent(cost: str, budget: float) -> str | None:
    """A number that no network is as cheap as was a percentage."""
    if cost.endswith("_pct") or not 0 < budget <= 100:
        return None
    share = 100 * budget if budget < 1 else budget
    return f"a budget without % is a count of {cost}; did you mean {share:g}%?"


def _number(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{option} {text}: not a number or a percentage")
    return value


def _write_now(text: str) -> None:
    """On standard error, from another thread: not by print, which may be what was interrupted."""
    os.write(sys.stderr.fileno(), f"\n{text}\n".encode())


def train(args: Namespace) -> int:
    from bitfront.search.recipes.final_folder import folder_for, refuse_other
    from bitfront.search.recipes.finals import FILE
    from bitfront.search.recipes.recipe import check_test_part, load_recipe, train_recipe
    from bitfront.search.recipes.training_progress import TrainingProgress
    from bitfront.search.session.interrupts import obey

    path = Path(args.recipe)
    recipe = load_recipe(path)
    if args.epochs is not None:
        recipe.final.epochs = args.epochs
    if args.seeds is not None:
        recipe.final.seeds = list(range(args.seeds))
    if args.half:
        recipe.final.rest = "float16"
    told = None
    out = Path(args.output) if args.output else None
    if out is None:
        out, told = folder_for(recipe, path)
        refuse_link(out)
    origin = _search_of(recipe, home.home(args.home))
    if origin is not None:  # told now, not when all is trained
        refuse_link(origin.path / FILE)
    silent = args.quiet or args.json
    note = (lambda text: None) if silent else terminal.say
    stages = home.stages_folder(home.home(args.home))
    if args.address is not None and args.workers is None:
        raise UserError("--address is for --workers N: one worker trains here")
    refuse_other(out, recipe)
    check_test_part(recipe, args.data_dir)
    if told is not None:
        note(told)
    seeds = len(set(recipe.final.seeds))
    note(f"{recipe.name}: epochs {recipe.final.epochs}, seeds {seeds}, into {out}")
    # Of several workers another thread tells, in which nothing can be interrupted.
    heed = obey if args.workers is None else lambda: None
    view = TrainingProgress(note, None if silent else sys.stdout, heed)
    try:
        with acknowledged(lambda: _write_now("interrupted, saving ...")):
            result = train_recipe(
                recipe,
                out,
                args.data_dir,
                threads=args.threads,
                note=note,
                stages=stages,
                workers=args.workers,
                address=args.address,
                progress=view,
            )
    except KeyboardInterrupt:
        kept = view.last
        done = f"seed {kept.seed} after epoch {kept.done} of {kept.epochs}" if kept else "nothing"
        told = f"kept in {out}: {done}; the same command goes on from there"
        print(terminal.filled(told), file=sys.stderr)
        return 130
    problem = _note_finals(recipe, result, home.home(args.home))
    if problem is not None:
        note(problem)
    if args.json:
        terminal.show_json(result.as_json())
        return 0
    quality = recipe.quality
    measured = {name for seed in result.seeds for name in seed.metrics}
    metrics = [m for m in recipe.kind.metrics if m.share and f"test_{m.bare}" in measured]
    rows = [
        [
            str(s.seed),
            *(m.number(s.metrics[f"test_{m.bare}"]) for m in metrics),
            terminal.count(s.bytes),
            s.checkpoint,
        ]
        for s in result.seeds
    ]
    headers = ["seed", *(f"test {terminal.short(m)}" for m in metrics), "bytes"]
    terminal.show("\n" + terminal.table([*headers, "packed checkpoint"], rows))
    spread = f" ± {quality.number(result.spread)}" if len(result.seeds) > 1 else ""
    expected = quality.text(recipe.expected.get(quality.name))
    known = f" (validation {quality.label} in the search: {expected})" if expected != "-" else ""
    terminal.say(
        f"\ntest {quality.label} {quality.number(result.mean)}{spread}{quality.unit} "
        f"over {len(result.seeds)} seeds, "
        f"{result.epochs} epochs on {result.train_examples} examples{known}"
    )
    return 0


def _search_of(recipe: Recipe, root: Path) -> home.SearchFolder | None:
    """The search a recipe came from, where that is here."""
    if recipe.provenance is None:
        return None
    folder = home.SearchFolder(root / recipe.provenance.search)
    return folder if folder.exists else None


def _note_finals(recipe: Recipe, result: FinalResult, root: Path) -> str | None:
    """Where the search of the recipe is here, its final trainings are told to it and to MLflow.
    Returns what went wrong, if anything did."""
    from bitfront.search.recipes.finals import FinalTraining, note_finals
    from bitfront.search.results.results import stored_config
    from bitfront.search.tracking.runs import deliver_extras

    origin, folder = recipe.provenance, _search_of(recipe, root)
    if origin is None or folder is None:
        return None
    made = [
        FinalTraining(
            recipe=recipe.name,
            trial=origin.trial,
            method=recipe.spec.method,
            plan=recipe.spec.plan,
            seed=seed.seed,
            epochs=result.epochs,
            checkpoint=str(Path(seed.checkpoint).resolve()),
            seconds=seed.seconds,
            ended=time.time(),
            metrics=seed.metrics,
            rest=recipe.final.rest,
        )
        for seed in result.seeds
    ]
    note_finals(folder, made)
    config = stored_config(folder)
    problem = deliver_extras(config, folder) if config.tracking.enabled else None
    return None if problem is None else f"MLflow did not take the final training: {problem}"


def replay(args: Namespace) -> int:
    from bitfront.search.recipes.replay import find_trial, replay_trial

    results, entry = find_trial(home.home(args.home), args.trial)
    report = replay_trial(
        results, entry, args.data_dir, note=terminal.show if not args.json else None
    )
    if args.json:
        terminal.show_json(report.as_json())
    else:
        terminal.show(report.text())
    return 0 if report.equal else 1


def ui(args: Namespace) -> int:
    from bitfront.search.tracking.server import serve

    folder = home.find(home.home(args.home), args.search) if args.search else None
    return serve(
        home.home(args.home), folder, args.host, args.port, open_browser=not args.no_browser
    )


def dashboard(args: Namespace) -> int:
    from bitfront.dashboards.pages import server as pages

    root = home.home(args.home)
    if args.optuna:
        searches = home.list_searches(root)
        if not args.search and not searches:
            raise UserError(f"no search has been run in {root}", "start one: bitfront run")
        folder = home.find(root, args.search) if args.search else searches[-1]
        return pages.serve_optuna(
            folder, args.host, args.port, not args.no_browser, args.allow_host or ()
        )
    return pages.serve(
        root, args.search, args.host, args.port, not args.no_browser, args.allow_host or ()
    )
