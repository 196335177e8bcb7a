"""The section `paper`: the published rows that a search aims at."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from bitfront.trainables.papers import citation, paper_of
from bitfront.trainables.parameters import Value
from bitfront.trainables.settings import Strict


class PaperRow(Strict):
    """One printed row of a paper's table: a setting, which trials answer that ran exactly it."""

    label: str
    """as the paper calls it; a label is there once"""
    value: float | None = None
    """the printed number, in the unit of `paper.metric`: an accuracy or AUC is a fraction; none
    where only the cost of the row is known"""
    spread: Annotated[float, Field(ge=0)] | None = None
    """the printed standard deviation of `value`"""
    values: dict[str, float] = Field(default_factory=dict)
    """further printed numbers of the row, by our metric: `{train_accuracy: 0.99}`"""
    spreads: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """the printed standard deviations of `values`"""
    flops_pct: Annotated[float, Field(gt=0, le=100)] | None = None
    """the printed flops in percent of the paper's network in full precision, shown beside our
    `flops_own_pct`; it chooses no trial"""
    epochs: Annotated[int, Field(ge=1)] | None = None
    """epochs of training of this row, where they are not `paper.epochs`"""
    column: str | None = None
    """which of `paper.columns` the row belongs to: its setting is added to `where`"""
    where: dict[str, Value] = Field(default_factory=dict)
    """the setting: a value for every key that `space` draws (see below)"""
    reason: str = ""
    """why the row cannot be run here; it is printed in place of our number, and `where` may then
    be incomplete"""


class PaperSpec(Strict):
    """The rows a search aims at. They are run first, each with several seeds."""

    title: str
    """of the paper, with year; or its key in docs/catalog.md, which knows authors, year and link:
    `title: bayesbinn`"""
    table: str
    """which table or figure, for example Table 3"""
    dataset: str
    """the paper's data; a name that is not that of `task.dataset` makes rows not comparable"""
    examples: Annotated[int, Field(ge=1)] | None = None
    """training examples of the paper, where they are not all of its data; a smaller `task.subset`
    makes rows not comparable"""
    model: str
    """the paper's network"""
    epochs: Annotated[int, Field(ge=1)] | None = None
    """epochs of training in the paper; trials with fewer are not comparable"""
    metric: str = "val_accuracy"
    """our metric that is compared with `value`; papers print that of a test set"""
    seeds: Annotated[int, Field(ge=0)] = 3
    """how many seeds each row is run with before the sampler is asked; 0: rows are not run, only
    trials that happen to have their settings answer them"""
    runs: Annotated[int, Field(ge=1)] = 1
    """over how many runs the paper's numbers and spreads are, for their standard errors"""
    where: dict[str, Value] = Field(default_factory=dict)
    """what `where` says of every row that draws the key, unless the row says otherwise"""
    columns: dict[str, dict[str, Value]] = Field(default_factory=dict)
    """what `where` says of the rows that name a `column`, unless the row says otherwise: `{binary:
    {plan: W, optimizer.lr: 1e-4}}`"""
    differs: str = ""
    """what makes our numbers not comparable with the printed ones, besides data and epochs:
    another network; rows are then marked by their order alone"""
    part: Literal["test set", "validation part"] = "test set"
    """what the printed `value` is of"""
    note: str = ""
    """what else differs"""
    rows: Annotated[list[PaperRow], Field(min_length=1)]
    """of the table"""

    @model_validator(mode="after")
    def _columns_complete_their_rows(self) -> Self:
        """Give rows the setting of their column; an unknown one is found by `checks.paper`."""
        for row in self.rows:
            row.where = {**self.columns.get(row.column or "", {}), **row.where}
        return self

    @field_validator("differs", "note", mode="before")
    @classmethod
    def _nothing_is_said(cls, text: Any) -> Any:
        """No text where none is given: `--set paper.differs=` for who has the paper's weights."""
        return "" if text is None else text

    @property
    def citation(self) -> str:
        """The paper with authors and year where it is known, else its title as written."""
        return citation(self.title)

    @property
    def link(self) -> str:
        """Where to read it; '' where that is not known."""
        found = paper_of(self.title)
        return "" if found is None else found.link
