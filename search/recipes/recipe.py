"""What a recipe holds, and reading and writing it: a self-contained YAML that final training runs.
export.py makes one of a point of a front; final_training.py trains it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from bitfront.search.config.mistakes import first_mistake
from bitfront.search.config.source import Source
from bitfront.search.config.source import read as read_yaml
from bitfront.search.ledger.folder import NAME
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.metrics import Metric
from bitfront.trainables.own_code import places
from bitfront.trainables.settings import Strict
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.tasks import Kind, kind_for
from bitfront.trainables.text_files import check_format, dump_yaml
from bitfront.trainables.training.parts import has_test_part

RECIPE_FORMAT = 1


class FinalSettings(Strict):
    """How the network of a recipe is trained."""

    epochs: Annotated[int, Field(ge=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    rest: Literal["float32", "float16"] = "float32"
    """how the packed checkpoint stores values that are not binary; the test uses the rounded
    values"""
    keep: Literal["last", "best"] = "last"
    """which epoch is tested and stored: the last one, trained on training and validation examples,
    or the one of the highest quality on a validation part that is held out as in the search"""


class Provenance(Strict):
    """The trial a recipe was exported from. Final trainings are recorded in the folder of its
    search where that exists."""

    search: Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
    trial: str
    number: int
    bitfront: str
    exported: str


class Recipe(Strict):
    """A self-contained description of a final training."""

    bitfront_recipe: Literal[1] = 1
    name: str
    spec: TrialSpec
    final: FinalSettings
    expected: dict[str, float] = Field(default_factory=dict)
    provenance: Provenance | None = None
    code: dict[str, str] = Field(default_factory=dict)
    """where code of the user's own was, by reference"""

    @property
    def kind(self) -> Kind:
        return kind_for(self.spec.task)

    @property
    def search(self) -> str:
        """The name of the search it was exported from, or its own where nobody knows."""
        return self.name if self.provenance is None else self.provenance.search

    @property
    def tested_on(self) -> str:
        """The part that the final network is measured on, as metrics begin: `test`, or `val` for
        data of the user's own that have no test part."""
        return "test" if has_test_part(self.spec.task) else "val"

    @property
    def part_in_words(self) -> str:
        return "test" if self.tested_on == "test" else "validation"

    @property
    def quality(self) -> Metric:
        """The metric by which the search chose the point."""
        known = [m for m in self.kind.metrics if m.name in self.expected]
        return known[0] if known else self.kind.quality


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe to a YAML file, with two lines of comment at its head."""
    reached = recipe.quality.text(recipe.expected[recipe.quality.name])
    head = (
        f"# A bitfront recipe: {reached} validation {recipe.quality.label}, "
        f"{recipe.expected['flops']:,.0f} FLOPs (MixBin convention).\n"
        f"# Final training: bitfront train {path.name}\n"
    )
    data = recipe.model_dump(mode="json")
    if not recipe.code:
        del data["code"]
    if recipe.final.keep == "last":  # versions that do not know the key read it
        del data["final"]["keep"]
    write_atomically(path, head + dump_yaml(data))


def load_recipe(path: Path) -> Recipe:
    """Read a recipe from a YAML file; mistakes in it are errors with file and line."""
    source = read_yaml(path)
    if "bitfront_recipe" not in source.data:
        raise UserError(
            f"{path}: not a recipe", "make one with: bitfront export SEARCH --budget 40%"
        )
    check_format(source.data["bitfront_recipe"], RECIPE_FORMAT, f"{path}: the recipe")
    _mend_trial(source)
    try:
        recipe = Recipe.model_validate(source.data)
    except ValidationError as error:
        wrong, mistake = first_mistake(error, source.data)
        key = ".".join(map(str, wrong))
        raise UserError(f"{source.where(wrong)} {key}: {mistake}") from None
    places.look_where(recipe.code)
    places.look_in(path.absolute().parent)
    return recipe


def _mend_trial(source: Source) -> None:
    """Restore a trial id such as 38580e12, which version 0.1 wrote without quotes: YAML reads it as
    a number."""
    provenance = source.data.get("provenance")
    if isinstance(provenance, dict) and isinstance(provenance.get("trial"), int | float):
        provenance["trial"] = source.written[("provenance", "trial")]
