"""A search beside the rows of the paper it follows: for each printed row the trial of the search
that answers it, with data and epochs of both. How it is printed is in `bitfront.terminal`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bitfront.search.config.schema import PaperRow, PaperSpec, SearchConfig
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.labels import OWN_SHARE
from bitfront.search.results.results import Results
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.metrics import Metric
from bitfront.trainables.models import MODELS
from bitfront.trainables.own_code import is_reference

# In points of percent: networks whose costs differ by more are shown without a difference.
SAME_COST = 5.0


@dataclass
class PaperComparison:
    """A search and the rows of a paper that its YAML has."""

    ours: Results

    def __post_init__(self) -> None:
        if self.ours.config.paper is None:
            raise UserError(
                f"search '{self.ours.config.name}' carries no rows of a paper",
                "a `paper:` section in its YAML would (docs/yaml.md)",
            )

    @property
    def paper(self) -> PaperSpec:
        """The `paper` section of the YAML."""
        paper = self.ours.config.paper
        assert paper is not None
        return paper

    @property
    def metric(self) -> Metric:
        """The metric in which rows are compared."""
        return self.ours.config.kind.metric(self.paper.metric)

    def answer(self, row: PaperRow) -> Entry | None:
        """The trial that matches the row and is nearest in cost, in percent of its own network, as
        papers state it. Among equally near trials, and where the row has no cost, the best one."""
        pool = self.ours.front
        if row.where:
            pool = [e for e in self.ours.entries if e.state == TrialState.COMPLETE]
        matching = [
            e
            for e in pool
            if self.paper.metric in e.metrics
            and all(self.value(e, key) == value for key, value in row.where.items())
        ]
        best_first = -1 if self.metric.maximize else 1

        def rank(entry: Entry) -> tuple[float, float]:
            cost = entry.costs[OWN_SHARE]
            away = 0.0 if row.flops_pct is None else abs(cost - row.flops_pct)
            return round(away, 2), best_first * entry.metrics[self.paper.metric]

        return min(matching, key=rank, default=None)

    def value(self, entry: Entry, key: str) -> Any:
        """The value of a key in a trial. A key with one value is not sampled, so it is looked up in
        the space. With the plan `F` every trial is stored with the method `fp`; the sampled method
        still says how the trial was trained against attacks."""
        space = self.ours.config.space
        plan = space.get("plan")
        if key == "method" and plan == "F":
            return entry.drawn.get("method", _only(space.get("method")))
        found = trial_value(entry, key)
        part, _, name = key.partition(".")
        if found is None and part == "plan" and isinstance(plan, dict):
            found = _only(plan.get(name))
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Every row of the paper, the trial that answers it, and the difference."""
        return [self._row(row) for row in self.paper.rows]

    def _row(self, row: PaperRow) -> dict[str, Any]:
        compared: dict[str, Any] = {"paper": row.model_dump(mode="json"), "ours": None}
        compared["difference"] = None
        entry = self.answer(row)
        if entry is not None:
            value, cost = entry.metrics[self.paper.metric], entry.costs[OWN_SHARE]
            compared["ours"] = {
                "trial": entry.id,
                "method": entry.spec.method,
                "plan": entry.spec.plan,
                "value": value,
                "flops_pct": entry.costs["flops_pct"],
                OWN_SHARE: cost,
                "epochs": entry.spec.task.epochs,
            }
            near = row.flops_pct is None or abs(cost - row.flops_pct) <= SAME_COST
            if near and row.value is not None:
                compared["difference"] = value - row.value
        return compared

    def as_json(self) -> dict[str, Any]:
        """The comparison as `bitfront compare NAME --paper --json` prints it."""
        config, paper = self.ours.config, self.paper
        return {
            "search": config.name,
            "paper": paper.model_dump(mode="json", exclude={"rows"}),
            "ours": {
                "dataset": config.task.dataset,
                "train_examples": train_examples(config),
                "model": config.task.model.model_dump(),
                "epochs": config.task.epochs,
                "metric": paper.metric,
                "trials": self.ours.counts()[TrialState.COMPLETE],
            },
            "rows": self.rows(),
        }


def _only(given: Any) -> Any:
    """The only value of a key of the space; None where there are several."""
    if isinstance(given, list):
        return given[0] if len(given) == 1 else None
    return None if isinstance(given, dict) else given


def train_examples(config: SearchConfig) -> int | None:
    """The number of examples a trial trains on, without those for validation; None where the
    dataset does not declare its size."""
    task = config.task
    size = DATASETS.get(task.dataset).train_size
    if not size:
        return None
    size = min(size, task.subset or size)
    return size - round(size * task.val_fraction)


def trial_value(entry: Entry, key: str) -> Any:
    """The value of a key of the space in a trial; None where the trial does not have it."""
    spec = entry.spec
    if key in ("method", "plan"):
        return getattr(spec, key)
    if key == "plan.all":
        return spec.plan[0] if len(set(spec.plan)) == 1 else None
    if key in entry.drawn:
        return entry.drawn[key]
    owner, _, name = key.rpartition(".")
    if owner == "model" and is_reference(spec.task.model.name):  # no code is run to look at trials
        return spec.task.model.params.get(name)
    if owner == "model":
        given = spec.task.model.params
        if is_reference(spec.task.model.name):  # looking at a search runs no code
            return given.get(name)
        return MODELS.get(spec.task.model.name).resolve(given).get(name)
    if owner == spec.method:
        return spec.params.get(name)
    found: Any = spec.task.model_dump()
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
