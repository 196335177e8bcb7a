"""Steps that are searches: `bitfront run`, which continues what was interrupted, and the results of
its ledger as a kept file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import bitfront as bf
from bitfront.search.results.published import kept
from bitfront.search.results.results import Results
from studies.steps import Place, Settings, Step, cores, settings_of


def searched(
    name: str,
    what: str,
    minutes: float,
    rehearsed: Sequence[str],
    file: str | None = None,
    settings: Settings = lambda _place: (),
    before: Callable[[Place], object] = lambda _place: None,
    words: Sequence[str] = (),
    repeats: bool = False,
) -> Step:
    """The search of a YAML of the study. `rehearsed`: its settings in a rehearsal; `before`: what
    must be there first; `words`: further ones of the command."""

    def run(place: Place) -> None:
        before(place)
        at_once = f"resources.concurrent={cores()}"
        made_up = rehearsed if place.rehearsal else ()
        changes = settings_of([*settings(place), *made_up, at_once])
        path = place.folder / (file or f"{name}.yaml")
        place.bitfront("run", path, "--name", name, *words, *changes)
        kept.write(bf.open(name, place.home).results, place.kept)

    return Step(name, what, minutes, run, repeats=repeats)


def results(place: Place, name: str) -> Results:
    """A search as it is kept."""
    return kept.read(place.file(name))
