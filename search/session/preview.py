"""A preview of a search: the size of its space, the share that the limits allow, the range of every
cost, and the time it will take, from a few timed steps. Its text is made in `bitfront.terminal`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from bitfront.search.config.bounds import cost_bounds, extreme_specs, feasible_share
from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.ending import asked_in_words
from bitfront.search.session.eta import START_SECONDS
from bitfront.search.session.rehearsal import Rehearsal, made_up_selection
from bitfront.search.session.rows import settle_rows
from bitfront.spaces.space import Space
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import MissingDataError
from bitfront.trainables.settings import PretrainSpec
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.training.distillation import make_loss
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.network import Network
from bitfront.trainables.training.parts import search_data

TIMED_STEPS = 8
# The most that `quick_estimate` may train: flops (multiply-adds), about a second on a CPU core.
QUICK_FLOPS = 1e10


@dataclass
class Preview:
    """What is known of a search before it starts."""

    search: str
    points: float | None
    feasible_share: float
    layers: int
    costs: dict[str, tuple[float, float]]
    full_flops: float
    trial_seconds: tuple[float, float] | None
    """of the cheapest and of the dearest trial; None where nothing was timed: that needs the
    data"""
    untimed: str
    """which data that would need, where they are not here"""
    concurrent: int
    trials: int | None
    """None where hours or the gain that is left decide alone"""
    pretraining_epochs: list[int]
    pretraining_seconds: float | None
    eta_seconds: float | None
    """without what early stopping saves"""
    until: str = ""
    """what ends the search besides its trials, in words"""
    priors: dict[str, str] = field(default_factory=dict)
    """what is believed best, by key: the value, and how sure that is"""
    early_stopping: bool = False
    rows: int = 0
    """of a paper"""
    rows_alone: bool = False
    """whether nothing else is run"""
    row_trials: int = 0
    """that they take, which run first"""
    row_epochs: int = 0
    """that those train in all"""
    row_seconds: float | None = None
    rehearsal: Rehearsal | None = None

    def as_json(self) -> dict[str, Any]:
        data = asdict(self)
        del data["rehearsal"]
        return data if self.rehearsal is None else {**data, "rehearsal": self.rehearsal.as_json()}

    @property
    def several_networks(self) -> bool:
        """Whether the space has networks of different cost in full precision."""
        return self.costs["flops_pct"] != self.costs["flops_own_pct"]


def preview_search(
    config: SearchConfig, space: Space, timed: bool = True, chosen: Sequence[str] | None = None
) -> Preview:
    """The preview of a search; without `timed` no step is trained, and nothing is known of time.
    `chosen`: labels of rows of a paper that are to run alone."""
    size = space.size()
    specs = extreme_specs(space)
    by_cost = sorted(specs, key=lambda spec: task_cost_table(spec.task).totals(spec.plan)["ops64"])
    timing = (by_cost[0], by_cost[-1]) if timed else ()
    untimed = ""
    try:
        seconds = sorted(trial_seconds(spec, config) for spec in timing)
    except MissingDataError as error:
        # Who looks at a large search has not got its data yet; all else is known without them.
        timed, seconds, untimed = False, [], "; ".join(filter(None, (error.message, error.hint)))
    concurrent = slots_here(config)
    mean = sum(seconds) / 2
    lengths = space.pretraining_lengths()
    before = [_full(by_cost[-1], n) for n in lengths[-1:]] if timed else []
    pretraining = max((trial_seconds(spec, config) for spec in before), default=0.0)
    eta = _eta(config, pretraining, mean, size, concurrent)
    # What selectors will choose is not known, but how many plans that is.
    rows = settle_rows(config, space.settled(made_up_selection, config.search.seed), chosen)
    return Preview(
        search=config.name,
        points=None if math.isinf(size) else size,
        feasible_share=feasible_share(config, space),
        layers=max(len(spec.plan) for spec in specs),
        costs=cost_bounds(space),
        full_flops=space.full_flops,
        trial_seconds=(seconds[0], seconds[-1]) if timed else None,
        untimed=untimed,
        concurrent=concurrent,
        trials=config.search.budget,
        until=asked_in_words(config.search),
        priors={key: prior.describe() for key, prior in space.priors().items()},
        pretraining_epochs=lengths,
        pretraining_seconds=pretraining if timed else None,
        eta_seconds=eta if timed else None,
        early_stopping=bool(config.search.rungs or config.search.inherit),
        rows=len(rows.settled if chosen is None else chosen),
        rows_alone=rows.alone,
        row_trials=len(rows.trainings),
        row_epochs=sum(each.epochs for each in rows.trainings),
        row_seconds=_seconds(pretraining, mean, len(rows.trainings), concurrent) if timed else None,
    )


def _eta(
    config: SearchConfig, pretraining: float, mean: float, size: float, concurrent: int
) -> float | None:
    """Seconds of the whole search; None where the gain alone ends it."""
    budget, hours = config.search.budget, config.search.hours
    whole = math.inf if budget is None else float(budget)
    trials = min(whole, size)
    if math.isfinite(trials):
        found = _seconds(pretraining, mean, int(trials), concurrent)
        # Trials that run when the hours are over are finished.
        return found if hours is None else min(found, 3600 * hours + mean)
    return None if hours is None else 3600 * hours + mean


def _seconds(pretraining: float, trial: float, trials: int, concurrent: int) -> float:
    return START_SECONDS + pretraining + trial * math.ceil(trials / concurrent)


def slots_here(config: SearchConfig) -> int:
    """How many trials run at once on this machine."""
    cpus = config.resources.cpus
    fits = max(1, int((os.cpu_count() or 1) // cpus)) if cpus else os.cpu_count() or 1
    return min(fits, config.resources.concurrent or fits)


def quick_estimate(config: SearchConfig, space: Space) -> tuple[float | None, int]:
    """Seconds of one trial and how many run at once. The seconds are None where timing a few steps
    would take long itself, or where trials run on GPUs, which this process does not have."""
    slots = slots_here(config)
    if config.resources.whole_gpus or not DATASETS.get(config.task.dataset).embedded:
        return None, slots
    specs = extreme_specs(space)
    by_cost = sorted(specs, key=lambda spec: task_cost_table(spec.task).totals(spec.plan)["ops64"])
    chosen = by_cost[0], by_cost[-1]
    work = sum(
        # Two rounds of steps; a backward pass takes twice as much as a forward pass.
        6 * TIMED_STEPS * s.task.batch_size * task_cost_table(s.task).totals(s.plan)["flops"]
        for s in chosen
    )
    if work > QUICK_FLOPS:
        return None, slots
    return sum(trial_seconds(spec, config) for spec in chosen) / len(chosen), slots


def _full(spec: TrialSpec, epochs: int) -> TrialSpec:
    """The pretraining in full precision of that many epochs, as a trial."""
    task = spec.task.model_copy(update={**spec.task.pretraining_settings, "epochs": epochs})
    return TrialSpec(task=task, plan="F" * len(spec.plan))


def trial_seconds(spec: TrialSpec, config: SearchConfig) -> float:
    """Seconds that the trial would take on this machine, from a few steps and one validation."""
    torch.set_num_threads(max(1, int(config.resources.cpus)))
    task = spec.task.model_copy(update={"pretrain": PretrainSpec()})
    spec = spec.model_copy(update={"task": task})
    train, validation = search_data(spec.task)
    batch = spec.task.batch_size
    few = train.subset(torch.arange(min(len(train), batch * TIMED_STEPS)))
    training = Training(spec, few, validation.subset(torch.arange(min(len(validation), 8))))
    # An untrained teacher takes as long as a trained one.
    training.loss = make_loss(training, teacher=Network(spec).model)
    training.epoch()  # the first steps are slower: buffers are allocated and kernels chosen
    started = time.perf_counter()
    training._train_epoch()
    step = (time.perf_counter() - started) / len(training.batches)
    started = time.perf_counter()
    training.kind.evaluate(training.model, validation)
    validate = time.perf_counter() - started
    steps = max(1, len(train) // batch)
    return spec.task.epochs * (steps * step + validate)
