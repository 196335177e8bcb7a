"""One search YAML, typed and validated. Everything that can be known to be wrong is found here,
before anything starts; errors name file, line, key and the nearest valid word."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from bitfront.search import named
from bitfront.search.config import source as yaml_source
from bitfront.search.config.mistakes import mistakes
from bitfront.search.config.source import Source
from bitfront.search.front import Objective
from bitfront.search.urls import canonical, know, with_secrets, without_secrets
from bitfront.trainables.errors import UserError, did_you_mean, quoted
from bitfront.trainables.metrics import Metric
from bitfront.trainables.parameters import Value
from bitfront.trainables.settings import Evaluation, Strict
from bitfront.trainables.task import Task
from bitfront.trainables.tasks import KINDS, Kind, kind_of, metric_names
from bitfront.trainables.text_files import check_format, dump_yaml, whole_path
from bitfront.trainables.worker.log import LOG_MB
from bitfront.trainables.worker.storage import is_url

# Where checkpoints go when the YAML does not say: a cluster knows, and its YAMLs need not.
STORAGE = "BITFRONT_STORAGE"
METRICS = metric_names()
# Of search.yaml; version 0.1 wrote none.
SEARCH_FORMAT = 1
# `flops_pct` is of the dearest full-precision network of the space, `flops_own_pct` of the trial's.
COSTS = ("flops", "flops_pct", "flops_own_pct", "ops64", "bops", "bytes", "parameters")
# The dearest full-precision network itself should count, so the reference point lies beyond it.
REFERENCE_FACTOR = 1.1
SAMPLERS = ("free-cost", "gp", "nsga2", "random", "tpe", "tpe-independent")
# What a plan draws once a trial, for rows of a paper to ask for.
PLAN_KEYS = ("plan.selector", "plan.budget", "plan.all")
# A checkpoint that is an artifact of an MLflow run begins so.
MLFLOW_RUN = "runs:/"


class Limit(Strict):
    """What a trial must satisfy. A bare number is a maximum."""

    min: float | None = None
    """at least this"""
    max: float | None = None
    """at most this; a bare number is short for it"""

    def violation(self, value: float) -> float:
        """How far outside: positive when violated, as Optuna counts constraints."""
        over = value - self.max if self.max is not None else float("-inf")
        under = self.min - value if self.min is not None else float("-inf")
        return max(over, under)

    def describe(self, name: str) -> str:
        parts = [f"{name} <= {self.max:g}"] if self.max is not None else []
        parts += [f"{name} >= {self.min:g}"] if self.min is not None else []
        return " and ".join(parts)


class EarlyStoppingSpec(Strict):
    """Trials that rank low at a fraction of their training are given up."""

    rungs: Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(min_length=1)] = Field(
        default_factory=lambda: [0.1, 0.3]
    )
    """fractions of a trial's training at which it is compared"""
    keep: Annotated[float, Field(gt=0, le=1)] = 0.5
    """share of the trials at a rung that goes on"""
    least: Annotated[int, Field(ge=2)] = 6
    """trials at a rung before any is given up"""
    control: Annotated[float, Field(ge=0, le=1)] = 0.1
    """share of trials that run to the end whatever their rank, to tell what stopping costs"""


class StartSpec(Strict):
    """Plans a search over free plans begins with."""

    selector: str | list[str]
    """one or several of `bitfront selectors`"""
    budgets: Annotated[list[float], Field(min_length=1)] = Field(
        default_factory=lambda: [80.0, 60.0, 40.0, 20.0, 10.0]
    )
    """percent of what the network itself costs in full precision, a plan each"""
    rule: str = "at_least"
    """stop before the flops fall below the budget, or at the `nearest` ones"""
    level: str = "B"
    """of the layers it chooses"""
    params: dict[str, Any] = Field(default_factory=dict)
    """of the selector"""
    trained_on: dict[str, Any] = Field(default_factory=dict)
    """changes of the task it looks at: another dataset, fewer epochs"""


class SearchSpec(Strict):
    """How the space is explored."""

    sampler: Literal["free-cost", "gp", "nsga2", "random", "tpe", "tpe-independent"] = "free-cost"
    """who chooses the points"""
    trials: Annotated[int, Field(ge=1)] = 50
    """how many; failed and pruned ones count"""
    seed: Annotated[int, Field(ge=0)] = 0
    """of the sampler and of every trial"""
    confirm: Annotated[float, Field(ge=0, le=0.9)] = 0.0
    """share of the trials that repeat points with other seeds, where it changes the front most"""
    early_stopping: EarlyStoppingSpec | None = None
    """give up trials that rank low early; `early_stopping: true` takes the defaults"""
    start_from: StartSpec | None = None
    """plans of a selector that are tried first"""

    @field_validator("early_stopping", mode="before")
    @classmethod
    def _on_or_off(cls, given: Any) -> Any:
        return {True: {}, False: None}[given] if isinstance(given, bool) else given


class ResourceSpec(Strict):
    """What one trial takes and how many run at once (none given: as many as fit)."""

    cpus: Annotated[float, Field(gt=0)] = 1
    """cores a trial, and its threads"""
    gpus: Annotated[float, Field(ge=0)] | Literal["auto"] = 0
    """GPUs a trial: a whole number, a fraction of one, or auto: as many trials share a GPU as the
    memory of the first one allows, none where there are no GPUs; without CUDA a trial trains on
    the CPU"""
    accelerator: str | None = None
    """type of those GPUs as Ray names it: T4, A100, ..."""
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """what else a trial takes of a node, by the names the cluster's nodes were started with"""
    concurrent: Annotated[int, Field(ge=1)] | None = None
    """trials at once; as many as fit when not given"""
    retries: Annotated[int, Field(ge=0)] = 2
    """how often a trial whose worker died is continued without having come further; one that has
    trained another epoch since has all its lives again"""
    checkpoint_every: Annotated[int, Field(ge=1)] = 1
    """epochs between checkpoints of a trial"""
    report_within: Annotated[float, Field(gt=0)] | None = None
    """seconds an epoch may take, the first one's start included; the worker of a trial that says
    nothing for longer is ended, and the trial continued elsewhere as after a death"""
    memory: Annotated[float, Field(gt=0)] | None = None
    """GB of host memory a trial may take beyond what its worker had before; more is a failure of
    that trial (oom) and not of its neighbours"""
    log_mb: Annotated[float, Field(gt=0)] | None = LOG_MB
    """MB of what trials print that Ray's log of their worker may hold; one that is larger begins
    anew, so that the end of what was printed is kept. null: it grows as long as the disk does"""

    @property
    def whole_gpus(self) -> float:
        """What a trial takes that is not packed with others."""
        return 1.0 if self.gpus == "auto" else self.gpus

    @model_validator(mode="after")
    def _can_be_asked_for(self) -> Self:
        if self.gpus != "auto" and self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus: {self.gpus:g} is neither a whole number nor below 1")
        if self.accelerator is not None and self.gpus == 0:
            raise ValueError("accelerator names a type of GPU: give gpus as well")
        known = {"cpu", "gpu", "memory", "object_store_memory"} & {n.lower() for n in self.custom}
        if known:
            raise ValueError(f"custom: {known.pop()} has a key of its own or cannot be asked for")
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
    """seconds a finished search waits for a tracking server that is away; what it does not take
    then, `bitfront resume` delivers"""


class PaperRow(Strict):
    """One printed row of a paper's table, and which of our trials answer it."""

    label: str
    """as the paper calls it"""
    value: float | None = None
    """the paper's number, in the unit of `paper.metric`: an accuracy or AUC is a fraction;
    none where only the cost of the row is known"""
    spread: Annotated[float, Field(ge=0)] | None = None
    """the paper's standard deviation, where it prints one"""
    flops_pct: Annotated[float, Field(gt=0, le=100)] | None = None
    """the row's cost, of the paper's network in full precision; the nearest of our points by
    `flops_own_pct` is shown, within 5 points a difference too"""
    where: dict[str, Value] = Field(default_factory=dict)
    """keys of `space` and their values: only trials with them count, best first; without it
    the row is answered by our front"""


class PaperSpec(Strict):
    """The rows a search aims at. Nothing of it changes a trial."""

    title: str
    """of the paper, with year"""
    table: str
    """which table or figure, for example Table 3"""
    dataset: str
    """the paper's data"""
    model: str
    """the paper's network"""
    epochs: Annotated[int, Field(ge=1)] | None = None
    """the paper trained"""
    metric: str = "val_accuracy"
    """our metric that is held against the rows; papers print the one of a test set"""
    note: str = ""
    """what else differs"""
    rows: Annotated[list[PaperRow], Field(min_length=1)]
    """of the table"""


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
    classification, `val_auc: max` for tracking) and `flops: min`"""
    limits: dict[str, Limit] = Field(default_factory=dict)
    """costs a trial must satisfy, checked before it is trained"""
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
    """published rows: `bitfront compare NAME --paper` prints ours beside them"""

    @field_validator("storage")
    @classmethod
    def _where_every_node_finds_it(cls, place: str | None) -> str | None:
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
        """What is optimized when the search does not say."""
        if isinstance(data, dict) and "objectives" not in data:
            task = data.get("task")
            dataset = task.get("dataset") if isinstance(task, dict) else None
            quality = _default_quality(str(dataset))
            mode = "max" if quality.maximize else "min"
            data = {**data, "objectives": {quality.name: mode, "flops": "min"}}
        return data

    @model_validator(mode="after")
    def _costs_last(self) -> Self:
        """The order objectives are written in means nothing: metrics come first, then costs."""
        ordered = sorted(self.objectives, key=lambda name: name in COSTS)
        self.objectives = {name: self.objectives[name] for name in ordered}
        return self

    @model_validator(mode="after")
    def _measured_robustness(self) -> Self:
        """What is optimized or held against a paper's rows is measured."""
        names = {*self.objectives, *([self.paper.metric] if self.paper is not None else [])}
        attack = self.task.attack
        for name in get_args(Evaluation):
            if f"val_robust_{name}" in names and name not in attack.evaluate:
                attack.evaluate.append(name)
        return self

    @property
    def kind(self) -> Kind:
        return kind_of(self.task.dataset)

    @property
    def quality(self) -> Metric:
        """What points are chosen and shown by besides their cost: the first metric that is
        optimized."""
        return self.kind.metric(next(name for name in self.objectives if name not in COSTS))

    @property
    def front_objectives(self) -> list[Objective]:
        return [Objective(name, mode == "max") for name, mode in self.objectives.items()]

    def dump(self) -> str:
        """The resolved configuration as YAML, every default written out, secrets left out."""
        return dump_yaml(self.open_data())

    def open_data(self) -> dict[str, Any]:
        """The configuration as plain data that anybody may see."""
        data = self.model_dump(mode="json")
        if self.tracking.uri is not None:
            data["tracking"]["uri"] = without_secrets(self.tracking.uri)
        if self.storage is not None:
            data["storage"] = without_secrets(self.storage)
        return data


def _default_quality(dataset: str) -> Metric:
    try:
        return kind_of(dataset).quality
    except UserError:  # told where the dataset itself is checked
        return KINDS.get("classification").quality


class ConfigError(UserError):
    """One or more mistakes in a search YAML, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class KeyProblem(Exception):
    """A mistake at a key, before its line is known."""

    def __init__(self, path: yaml_source.Path_, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


def load(path: Path, assignments: list[str] | None = None, name: str | None = None) -> SearchConfig:
    """Read and validate a search YAML with its overrides."""
    source = yaml_source.read(path)
    return from_source(source, assignments, name, default_name=path.stem)


def from_source(
    source: Source,
    assignments: list[str] | None = None,
    name: str | None = None,
    default_name: str = "search",
) -> SearchConfig:
    yaml_source.override(source, assignments or [])
    check_format(source.data.get("bitfront_search"), SEARCH_FORMAT, f"{source.name}: the search")
    source.data.setdefault("name", default_name)
    if name is not None:
        source.data["name"] = name
    _expand_short_limits(source.data)
    know(source.data)
    source.data["storage"] = _place(source.data.get("storage"), named.given("storage"))
    try:
        config = SearchConfig.model_validate(source.data)
    except ValidationError as error:
        raise ConfigError(_problems(error, source)) from None
    if config.tracking.uri is not None:
        config.tracking.uri = canonical(config.tracking.uri)
    if config.storage is not None:
        config.storage = canonical(config.storage)
    pretrain = config.task.pretrain
    if pretrain.checkpoint is not None and not pretrain.checkpoint.startswith(MLFLOW_RUN):
        # Workers run in folders of their own.
        with _at(source, ("task", "pretrain", "checkpoint")):
            pretrain.checkpoint = str(whole_path(pretrain.checkpoint))
    distill = config.task.loss.distill
    if distill.teacher_file is not None:
        with _at(source, ("task", "loss", "distill", "teacher")):
            distill.teacher = str(teacher_path(distill.teacher_file))
    from bitfront.search.config.checks import check

    problems = [_line(source, p.path, p.message) for p in check(config)]
    if problems:
        raise ConfigError(problems)
    return _settled(config)


@contextmanager
def _at(source: Source, path: yaml_source.Path_) -> Iterator[None]:
    """What is wrong with a value, told with its key and line."""
    try:
        yield
    except UserError as error:
        raise ConfigError([_line(source, path, error.message)]) from None


def _place(given: Any, known: str | None) -> Any:
    """Where checkpoints go: what the YAML says, with the secrets that are stored nowhere."""
    if given is None:
        return known or None
    return with_secrets(given, known) if isinstance(given, str) else given


def teacher_path(text: str) -> Path:
    """A file, or the recipe of a ready-made teacher by its name."""
    path = whole_path(text)
    folder = Path(str(resources.files("bitfront.spaces"))) / "teachers"
    known = {recipe.stem: recipe for recipe in folder.glob("*.yaml")}
    return known.get(text, path) if not path.exists() else path


def _settled(config: SearchConfig) -> SearchConfig:
    """With everything written out that trials start from: how a shared stage is trained, and
    which file a checkpoint is."""
    task = config.task
    stages = {"pretrain.epochs", "pretrain.binary_epochs"}
    if task.pretrain.epochs or task.pretrain.binary_epochs or stages & set(config.space):
        task = task.with_settled_pretraining()
    checkpoint = task.pretrain.checkpoint
    if checkpoint is not None and not checkpoint.startswith(MLFLOW_RUN):
        from bitfront.trainables.training.checkpoint_files import file_digest

        digest = file_digest(Path(checkpoint))
        pretrain = task.pretrain.model_copy(update={"sha256": digest})
        task = task.model_copy(update={"pretrain": pretrain})
    teacher = task.loss.distill.teacher_file
    if teacher is not None:
        from bitfront.trainables.training.checkpoint_files import file_digest

        digest = file_digest(Path(teacher))
        distill = task.loss.distill.model_copy(update={"sha256": digest})
        loss = task.loss.model_copy(update={"distill": distill})
        task = task.model_copy(update={"loss": loss})
    return config.model_copy(update={"task": task})


def _expand_short_limits(data: dict[str, Any]) -> None:
    limits = data.get("limits")
    if isinstance(limits, dict):
        for key, limit in limits.items():
            if isinstance(limit, int | float) and not isinstance(limit, bool):
                limits[key] = {"max": limit}


def _line(source: Source, path: yaml_source.Path_, message: str) -> str:
    dotted = ".".join(str(p) for p in path)
    return f"{source.where(path)} {dotted}: {message}"


def _problems(error: ValidationError, source: Source) -> list[str]:
    found = mistakes(error, source.data, _keys_at, _short_at)
    return list(dict.fromkeys(_line(source, path, message) for path, message in found))


def _keys_at(path: yaml_source.Path_) -> list[str]:
    """The keys the schema knows below `path`."""
    model: Any = SearchConfig
    for part in path:
        if isinstance(part, int):
            continue  # an item of a list has the keys of all items
        field = model.model_fields.get(str(part)) if _is_model(model) else None
        if field is None:
            model = Limit if path[0] == "limits" else None
            break
        model = next(
            (t for t in (field.annotation, *get_args(field.annotation)) if _is_model(t)), None
        )
    return list(model.model_fields) if _is_model(model) else []


# What a single value may stand for; a limit has a name of its own.
_SHORT = {
    ("limits", "*"): "a number",
    ("task", "model"): "a name",
    ("task", "optimizer"): "a name",
    ("task", "schedule"): "a name",
    ("task", "pretrain"): "a number of epochs or a file",
    ("task", "loss", "distill"): "a name",
    ("search", "early_stopping"): "true or false",
}


def _short_at(path: yaml_source.Path_) -> str:
    known = ("limits", "*") if path[:1] == ("limits",) and len(path) == 2 else path
    return _SHORT.get(tuple(map(str, known)), "")


def _is_model(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseModel)


def ready_made() -> dict[str, Path]:
    """The searches that come with bitfront, by name."""
    folder = Path(str(resources.files("bitfront.spaces"))) / "searches"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def locate(text: str) -> Path:
    """A path to a YAML, or the name of a ready-made search."""
    known = ready_made()
    if text in known and not os.path.isfile(text):
        return known[text]
    path = Path(text)
    if path.suffix in (".yaml", ".yml") or os.path.exists(text):
        return path
    raise UserError(
        f"'{text}' is neither a file nor a ready-made search, {did_you_mean(text, known)}"
    )
