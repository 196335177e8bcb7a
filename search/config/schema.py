"""The keys of a search YAML as pydantic models, with a sentence for each: docs/yaml.md is made of
them. Models only: files and overrides are read in `load`, values of `space` are in `domains` and
`plans`, and what the type of a key cannot say is in the checks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from bitfront.search.config.known import (
    default_objectives,
    is_cost,
    is_sampler,
    names_of_costs,
    samplers,
)
from bitfront.search.config.plans import SelectingSpec, StartSpec
from bitfront.search.config.sections.bounds import Limit, UntilSpec
from bitfront.search.config.sections.inheriting import InheritSpec
from bitfront.search.config.sections.paper import PaperSpec
from bitfront.search.config.sections.pausing import PauseSpec
from bitfront.search.front import Objective
from bitfront.search.urls import without_secrets
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError, did_you_mean, quoted
from bitfront.trainables.metrics import Metric
from bitfront.trainables.settings import Strict
from bitfront.trainables.task import Task
from bitfront.trainables.tasks import Kind, kind_for
from bitfront.trainables.text_files import dump_yaml, whole_path
from bitfront.trainables.worker.log import LOG_MB
from bitfront.trainables.worker.storage import is_url

# The format of search.yaml; version 0.1 wrote none.
SEARCH_FORMAT = 1
# `search.trials` of a search that ends by its hours or its gain alone.
UNLIMITED = 1_000_000


class EarlyStoppingSpec(Strict):
    """Trials that rank low at a fraction of their training are stopped."""

    rungs: Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(min_length=1)] = Field(
        default_factory=lambda: [0.1, 0.3]
    )
    """fractions of a trial's training at which it is compared"""
    keep: Annotated[float, Field(gt=0, le=1)] = 0.5
    """share of the trials at a rung that continue"""
    least: Annotated[int, Field(ge=2)] = 6
    """trials that must have reached a rung before any is stopped there"""
    control: Annotated[float, Field(ge=0, le=1)] = 0.1
    """share of trials that run to the end whatever their rank, to measure what stopping costs"""


class SearchSpec(Strict):
    """How the space is explored."""

    sampler: str = "free-cost"
    """the algorithm that proposes points; or code of your own (`my_sampler.py:MySampler`)"""
    trials: Annotated[int, Field(ge=1)] = 50
    """how many; failed and stopped ones count, and those of rows of `paper`, which come first;
    as many as it takes where only `hours` or `until` is given"""
    hours: Annotated[float, Field(gt=0)] | None = None
    """no trial begins after so many hours in which trials run, those of all turns together; the
    trials that run then are finished"""
    until: UntilSpec | None = None
    """end when little is left to gain: `until: {gain: 0.1%}`; beside `trials` and `hours`,
    whichever comes first"""
    seed: Annotated[int, Field(ge=0)] = 0
    """of the sampler and of every trial"""
    confirm: Annotated[float, Field(ge=0, le=0.9)] = 0.0
    """share of the trials that repeat points with other seeds, where it changes the front most"""
    early_stopping: EarlyStoppingSpec | None = None
    """stop trials that rank low; `early_stopping: true` takes the defaults"""
    pause: PauseSpec | None = None
    """let trials rest at a fraction of their training, and take up again those that promise most;
    `pause: true` takes the defaults"""
    inherit: InheritSpec | None = None
    """look at a new point with a short training from the weights of the nearest finished trial
    before it is trained from scratch; `inherit: true` takes the defaults"""
    start_from: StartSpec | None = None
    """plans of a selector that are tried before any other point"""
    advice: SelectingSpec | None = None
    """a selector whose order of layers the model begins with, until trials say otherwise:
    `advice: mixbin-grad`"""
    bench: bool = False
    """measure the points of the front when the search ends, on the machine that drives it: the
    packed networks of their plans, with random weights, which take as long as trained ones"""

    @model_validator(mode="after")
    def _as_many_as_it_takes(self) -> Self:
        """Without a number of trials the time or the gain decides alone."""
        if "trials" not in self.model_fields_set and (self.hours or self.until):
            self.trials = UNLIMITED
        return self

    @property
    def budget(self) -> int | None:
        """The number of trials; None where hours or the gain decide alone."""
        return None if self.trials >= UNLIMITED else self.trials

    @property
    def rungs(self) -> list[float]:
        """The fractions of a trial's training at which it may be stopped, or rest."""
        spec = self.early_stopping or self.pause
        return [] if spec is None else spec.rungs

    @field_validator("sampler")
    @classmethod
    def _known_sampler(cls, name: str) -> str:
        """A name from the registry of samplers, or code of the user's own."""
        if not is_sampler(name):
            raise ValueError(f"{quoted(name)} is not known, {did_you_mean(name, samplers())}")
        return name

    @field_validator("advice", mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        """The name of a selector is short for one with its defaults."""
        return {"selector": given} if isinstance(given, str | list) else given

    @field_validator("early_stopping", "pause", "inherit", mode="before")
    @classmethod
    def _on_or_off(cls, given: Any) -> Any:
        """`true` is short for all defaults, `false` for none of it."""
        return {True: {}, False: None}[given] if isinstance(given, bool) else given


class ResourceSpec(Strict):
    """What one trial occupies, and how many run at once."""

    cpus: Annotated[float, Field(gt=0)] = 1
    """cores per trial; a trial uses as many threads"""
    gpus: Annotated[float, Field(ge=0)] | Literal["auto"] = 0
    """GPUs per trial: a whole number, a fraction of one, or auto: as many trials share a GPU as the
    memory of the first one allows, none where there are no GPUs; without CUDA a trial trains on
    the CPU"""
    accelerator: str | None = None
    """type of those GPUs as Ray names it: T4, A100, ..."""
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """custom Ray resources per trial, by the names the cluster's nodes were started with"""
    concurrent: Annotated[int, Field(ge=1)] | None = None
    """trials at once; as many as fit when not given"""
    retries: Annotated[int, Field(ge=0)] = 2
    """how often a trial whose worker died is continued; after another complete epoch the count
    starts again"""
    checkpoint_every: Annotated[int, Field(ge=1)] = 1
    """epochs between checkpoints of a trial"""
    report_within: Annotated[float, Field(gt=0)] | None = None
    """seconds an epoch may take, the start of the worker included; a worker that reports nothing
    for longer is ended, and its trial continued on another one"""
    memory: Annotated[float, Field(gt=0)] | None = None
    """GB of host memory a trial may use beyond what its worker used before; a trial that uses more
    fails (oom), the others go on"""
    log_mb: Annotated[float, Field(gt=0)] | None = LOG_MB
    """MB that a worker's log may reach; a larger one is emptied, as its first line then says,
    and what is printed afterwards is kept. null: no limit"""

    @property
    def whole_gpus(self) -> float:
        """GPUs of a trial that does not share one."""
        return 1.0 if self.gpus == "auto" else self.gpus

    @model_validator(mode="after")
    def _can_be_requested(self) -> Self:
        """Ray accepts whole GPUs or a fraction of one, and custom resources under other names."""
        if self.gpus != "auto" and self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus: {self.gpus:g} is neither a whole number nor below 1")
        if self.accelerator is not None and self.gpus == 0:
            raise ValueError("accelerator names a type of GPU: give gpus as well")
        known = {"cpu", "gpu", "memory", "object_store_memory"} & {n.lower() for n in self.custom}
        if known:
            raise ValueError(f"custom: {known.pop()} has a key of its own or cannot be requested")
        return self


class TrackingSpec(Strict):
    """Where runs are shown. No uri: MLFLOW_TRACKING_URI, else a SQLite file beside the searches."""

    enabled: bool = True
    """false: no MLflow"""
    uri: str | None = None
    """of a tracking server or database"""
    experiment: str | None = None
    """its name; default: dataset and model"""
    patience: Annotated[float, Field(ge=0)] = 90.0
    """seconds a finished search waits for a tracking server that does not answer; `bitfront
    resume` delivers the rest"""


class DeviceSpec(Strict):
    """The device table that `latency_ms` is of."""

    table: str
    """its name in `devices/` of the home, or a file; `bitfront bench` makes it"""
    sha256: str | None = None
    """of its times of the networks of the space, which the folder of the search keeps too"""


class SearchConfig(Strict):
    """A space + objectives + a budget of trials."""

    bitfront_search: int = SEARCH_FORMAT
    """format of this file; one of a newer bitfront is refused"""
    name: str
    """of the search, its folder and its parent run; default: the file's name"""
    description: str = ""
    """shown in MLflow"""
    task: Task
    """what a trial trains"""
    space: dict[str, Any] = Field(default_factory=dict)
    """what may change between trials"""
    objectives: dict[str, Literal["max", "min"]] = Field(default_factory=dict)
    """metrics and costs to optimize; default: the quality of the task (`val_accuracy: max` for
    classification, `val_auc: max` for object tracking) and `flops: min`"""
    costs: list[str] = Field(default_factory=list)
    """costs of your own, for objectives and limits: `my_costs.py:cycles`, a function of a layer, is
    the cost `cycles`"""
    limits: dict[str, Limit] = Field(default_factory=dict)
    """what a network must satisfy: costs, checked before a trial is trained, and metrics
    (`val_accuracy: {min: 0.9}`), without which it is no point of the front"""
    device: DeviceSpec | None = None
    """the machine of `latency_ms`; default: this one, where `bitfront bench` measured the networks
    of the space"""
    search: SearchSpec = Field(default_factory=SearchSpec)
    """how the space is explored"""
    resources: ResourceSpec = Field(default_factory=ResourceSpec)
    """what one trial takes"""
    storage: str | None = None
    """where running trials keep their checkpoints: a folder all nodes mount, or a URL (s3://...,
    gs://..., file://...); BITFRONT_STORAGE, else the search's own folder, when not given"""
    tracking: TrackingSpec = Field(default_factory=TrackingSpec)
    """where runs are shown"""
    paper: PaperSpec | None = None
    """published rows, which the search runs first: `bitfront compare NAME --paper` prints ours
    beside them"""

    @field_validator("storage")
    @classmethod
    def _same_on_every_node(cls, place: str | None) -> str | None:
        """A URL, or a path from the root: workers run in folders of their own."""
        if place is None or is_url(place):
            return place
        if not place.startswith(("/", "~")):
            raise ValueError(
                f"{quoted(place)} is no whole path, and workers run in folders of their own"
            )
        try:
            whole_path(place)
        except UserError as error:
            raise ValueError(error.message) from None
        return str(Path(place).expanduser())

    @model_validator(mode="before")
    @classmethod
    def _quality_and_flops(cls, data: Any) -> Any:
        """Fill in the default objectives where the search names none."""
        if isinstance(data, dict) and "objectives" not in data:
            task = data.get("task")
            dataset = task.get("dataset") if isinstance(task, dict) else None
            # Data of the user's own are looked at later, when the configuration is settled.
            if not DATASETS.is_unseen(str(dataset)):
                data = {**data, "objectives": default_objectives(str(dataset))}
        return data

    @model_validator(mode="after")
    def _costs_last(self) -> Self:
        """Put metrics first, then costs: the order in the YAML has no meaning."""
        ordered = sorted(self.objectives, key=is_cost)
        self.objectives = {name: self.objectives[name] for name in ordered}
        return self

    @property
    def kind(self) -> Kind:
        """The kind of the task, which its dataset declares, with metrics of the user's own."""
        return kind_for(self.task)

    @property
    def quality(self) -> Metric:
        """The first metric that is optimized: points are chosen and shown by it and by cost."""
        return self.kind.metric(next(name for name in self.objectives if not is_cost(name)))

    @property
    def cost_names(self) -> tuple[str, ...]:
        """The names of all costs, those of the user's own last."""
        return names_of_costs(self.costs)

    @property
    def cost_limits(self) -> dict[str, Limit]:
        """The limits on costs, which are known before a trial."""
        return {name: limit for name, limit in self.limits.items() if is_cost(name)}

    @property
    def measured_limits(self) -> dict[str, Limit]:
        """The limits on metrics, which only a trial can tell."""
        return {name: limit for name, limit in self.limits.items() if not is_cost(name)}

    @property
    def front_objectives(self) -> list[Objective]:
        """The objectives as `search.front` takes them."""
        return [Objective(name, mode == "max") for name, mode in self.objectives.items()]

    def dump(self) -> str:
        """The resolved configuration as YAML, every default written out, secrets left out."""
        return dump_yaml(self.open_data())

    def open_data(self) -> dict[str, Any]:
        """The configuration as plain data, without secrets."""
        data = self.model_dump(mode="json")
        if self.tracking.uri is not None:
            data["tracking"]["uri"] = without_secrets(self.tracking.uri)
        if self.storage is not None:
            data["storage"] = without_secrets(self.storage)
        return data
