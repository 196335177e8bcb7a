"""`bf.open`: a search that was run, or runs, as tables and figures, and what can be done with it.
Everything is read anew when it is asked for: a search may be running."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bitfront.api.figures import interactive
from bitfront.api.turns import continue_turn
from bitfront.search import kept_code
from bitfront.search.ledger.folder import SearchFolder, code_folder, find, home, pretrained_folder
from bitfront.search.recipes.choice import best_within, cheapest_with, knee_of
from bitfront.search.recipes.export import recipe_of, save_beside
from bitfront.search.recipes.final_folder import folder_for, refuse_other
from bitfront.search.recipes.recipe import Recipe, load_recipe
from bitfront.search.results.results import Results, config_to_continue
from bitfront.search.session.interrupts import ending_gently, obey
from bitfront.terminal.next_commands import new_search
from bitfront.terminal.notebooks import training_progress
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import look_in, references_in, shown
from bitfront.trainables.own_code.trusted import trusting
from bitfront.verbs.searching.extend import more_hours, more_trials
from bitfront.verbs.searching.stop import stopped

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from bitfront.search.ledger.entry import Entry
    from bitfront.search.recipes.final_training import FinalResult


class OpenedSearch:
    """A search in a home: its trials, its front, its recipes."""

    def __init__(self, folder: SearchFolder) -> None:
        self.folder = folder
        look_in(code_folder(folder.path.parent))
        kept_code.look(folder.path)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def path(self) -> Path:
        """The folder of the search."""
        return self.folder.path

    @property
    def results(self) -> Results:
        """All that was found so far, as objects of bitfront's own."""
        return Results.of(self.folder)

    @property
    def state(self) -> str:
        """running, interrupted or complete."""
        return self.results.state

    @property
    def trials(self) -> pd.DataFrame:
        """A row per trial: its settings, state, metrics and costs."""
        import pandas as pd

        results = self.results
        rows = [_row(entry) for entry in results.entries]
        return pd.DataFrame(rows).set_index("trial") if rows else pd.DataFrame()

    @property
    def front(self) -> pd.DataFrame:
        """A row per point of the front, with means over its seeds, the cheapest first."""
        import pandas as pd

        rows = [_row(entry) for entry in self.results.front]
        if not rows:
            return pd.DataFrame()
        table = pd.DataFrame(rows).drop(columns=["state", "failure"], errors="ignore")
        return table.set_index("trial").dropna(axis="columns", how="all")

    def figure(self, kind: str = "front") -> Figure:
        """An interactive figure of the search; it shows inline in a notebook."""
        return interactive(self.folder, kind)

    def export(
        self,
        budget: str | None = None,
        min_accuracy: str | float | None = None,
        trial: str | None = None,
        epochs: int | None = None,
        seeds: int = 3,
        path: str | os.PathLike[str] | None = None,
    ) -> ExportedRecipe:
        """A point of the front as a recipe: the best within `budget` ('40%' or a count), the
        cheapest with `min_accuracy`, a `trial`, or, where none is given, the knee of the front. It
        is written to `path`, by default beside the current folder's other recipes."""
        results = self.results
        if not results.front:
            raise UserError(f"search '{self.name}' has no complete trial yet")
        entry = _chosen(results, budget, min_accuracy, trial)
        recipe = recipe_of(results, entry, epochs, list(range(seeds)))
        file = Path(path) if path is not None else Path(f"{self.name}-{entry.id}.yaml")
        return ExportedRecipe(save_beside(recipe, file, force=path is not None), self.path.parent)

    def resume(
        self, address: str | None = None, quiet: bool = False, trust: bool = False
    ) -> OpenedSearch:
        """Run what is left of the search, and return it. `trust`: run the code that the search
        names although you have not run it before."""
        continue_turn(config_to_continue(self.folder), self.folder, address, quiet, trust)
        return self

    def extend(
        self,
        trials: int | None = None,
        address: str | None = None,
        quiet: bool = False,
        trust: bool = False,
        hours: float | None = None,
    ) -> OpenedSearch:
        """Give the search so many trials or hours more, run them, and return it."""
        if trials is None and hours is None:
            raise UserError("extend: give trials or hours")
        if trials is not None and trials < 1:
            raise UserError(f"extend: {trials} trials: give how many more, at least 1")
        config = config_to_continue(self.folder)
        if trials is not None:
            more_trials(config.search, f"+{trials}", self.results)
        if hours is not None:
            more_hours(config.search, f"+{hours}", self.results)
        continue_turn(config, self.folder, address, quiet, trust)
        return self

    def stop(self) -> str:
        """End the driver of the search, if it runs in another process here, as ctrl-C would;
        returns what the search is then: stopped, running (it ends with the epochs under way), or
        not running. `resume` continues it."""
        driver = self.folder.driver
        if driver is not None and driver == (socket.gethostname(), os.getpid()):
            raise UserError(f"search '{self.name}' runs in this process", "interrupt it")
        return stopped(self.folder)

    def __repr__(self) -> str:
        results = self.results
        ended, budget = sum(results.counts().values()), results.config.search.budget
        trials = f"{ended} trials" if budget is None else f"{ended} of {budget} trials"
        return f"<search {self.name}: {results.state}, {trials}, front of {len(results.front)}>"

    def _repr_html_(self) -> str:
        """The front as a table and a figure, for notebooks."""
        import html

        text = f"<p>{html.escape(repr(self)[1:-1])}</p>"
        if not self.results.front:
            return text
        figure = self.figure("front").to_html(full_html=False, include_plotlyjs="require")
        return f"{text}{self.front.to_html()}{figure}"


class ExportedRecipe:
    """A recipe on disk: what `bitfront train` trains."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.root = root

    @property
    def recipe(self) -> Recipe:
        return load_recipe(self.path)

    def train(
        self,
        seeds: int | None = None,
        epochs: int | None = None,
        out: str | os.PathLike[str] | None = None,
        data_dir: str | None = None,
        quiet: bool = False,
        workers: int | None = None,
        trust: bool = False,
        keep: Literal["last", "best"] | None = None,
    ) -> TrainedRecipe:
        """Final training: train and validation data together, tested on the test part, packed. With
        `keep="best"` the validation part is held out, and its best epoch is tested. What was
        trained before is kept, after an interrupt too: the same call goes on from there."""
        from bitfront.search.recipes.final_training import check_test_part, train_recipe
        from bitfront.search.recipes.origin import note_result

        recipe = self.recipe
        if seeds is not None:
            recipe.final.seeds = list(range(seeds))
        if epochs is not None:
            recipe.final.epochs = epochs
        if keep is not None:
            recipe.final.keep = keep
        folder = Path(out) if out is not None else folder_for(recipe, self.path)[0]
        refuse_other(folder, recipe)
        note = (lambda _text: None) if quiet else print
        view = training_progress(note, quiet)
        # With several workers another thread reports the epochs.
        view.heed = obey if workers is None else view.heed
        names = references_in(recipe.spec.model_dump(mode="json"))
        for text in kept_code.edited(names, new_search(recipe.search), [self.path.parent]):
            note(f"warning: {text}")
        with trusting(trust), ending_gently():
            check_test_part(recipe, data_dir)
            result = train_recipe(
                recipe,
                folder,
                data_dir,
                note=note,
                pretrained=pretrained_folder(self.root),
                workers=workers,
                progress=view,
            )
        note_result(recipe, result, self.root)
        return TrainedRecipe(folder, result)

    def __repr__(self) -> str:
        return f"<recipe {self.path}>"


class TrainedRecipe:
    """The result of a final training: test metrics over the seeds, and the packed networks."""

    def __init__(self, path: Path, result: FinalResult) -> None:
        self.path = path
        self.result = result

    @property
    def mean(self) -> float:
        """The quality on the test part, mean over the seeds."""
        return self.result.mean

    @property
    def spread(self) -> float:
        """Its standard deviation over the seeds."""
        return self.result.spread

    @property
    def networks(self) -> list[Path]:
        """The files of the packed networks, one per seed, for `bf.load`."""
        return [Path(seed.checkpoint) for seed in self.result.seeds]

    @property
    def seeds(self) -> pd.DataFrame:
        """A row per seed with its test metrics."""
        import pandas as pd

        rows = [{"seed": seed.seed, **seed.metrics} for seed in self.result.seeds]
        return pd.DataFrame(rows).set_index("seed")

    def __repr__(self) -> str:
        quality = self.result.quality
        return f"<trained {self.path}: {quality} {self.mean:.4f} +- {self.spread:.4f}>"


def open(
    name: str | os.PathLike[str], home_folder: str | os.PathLike[str] | None = None
) -> OpenedSearch:
    """The search of that name in the home, or in this folder; it may be running."""
    given = Path(name)
    if given.is_dir() and (given / "search.yaml").is_file():
        return OpenedSearch(SearchFolder(given.resolve()))
    return OpenedSearch(find(home(home_folder), str(name)))


def _row(entry: Entry) -> dict[str, Any]:
    """One trial as a row of a table."""
    return {
        "trial": entry.id,
        "number": entry.number,
        "state": str(entry.state),
        "method": shown(entry.spec.method),
        "plan": entry.spec.plan,
        **{f"space.{key}": value for key, value in entry.drawn.items()},
        **entry.metrics,
        **entry.costs,
        "seeds": entry.seeds,
        "seconds": entry.seconds,
        "failure": entry.failure,
    }


def _chosen(
    results: Results, budget: str | None, min_accuracy: str | float | None, trial: str | None
) -> Entry:
    if sum(choice is not None for choice in (budget, min_accuracy, trial)) > 1:
        raise UserError("export: give one of budget, min_accuracy and trial")
    if trial is not None:
        return results.find(trial)
    if budget is not None:
        return best_within(results, str(budget))
    if min_accuracy is not None:
        return cheapest_with(results, str(min_accuracy))
    return knee_of(results)
