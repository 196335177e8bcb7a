"""What a trial trains, as plain validated data: the task, the point of the space and the seed.
A search YAML, a ledger entry and a recipe all carry these models; nothing here knows torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainables.parameters import Value

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Strict(BaseModel):
    """Unknown keys are errors, everywhere."""

    model_config = ConfigDict(
        extra="forbid", validate_default=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class ModelSpec(BaseModel):
    """A model by name and its parameters (`bitfront models` lists both)."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    name: str
    """one of `bitfront models`; its parameters are further keys here"""

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class OptimizerSpec(Strict):
    """The optimizer of the latent weights and of everything that stays in full precision."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    """of latent weights and everything in full precision"""
    lr: Annotated[float, Field(gt=0)] = 3e-3
    """learning rate at its highest"""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """on all parameters, latents included"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """of sgd"""


class LearningRateSpec(Strict):
    """How the learning rate moves, in fractions of training."""

    shape: Literal["constant", "linear", "cosine", "steps"] = "cosine"
    """how the learning rate falls; `schedule: cosine` is short for this key"""
    warmup: Fraction = 0.0
    """fraction of training over which it rises first"""
    end_factor: Annotated[float, Field(ge=0)] = 0.0
    """the last learning rate as a share of lr (linear, cosine)"""
    at: list[Fraction] = Field(default_factory=lambda: [0.5, 0.75])
    """fractions of training at which steps come"""
    factor: Annotated[float, Field(gt=0)] = 0.1
    """what each step multiplies with"""


class LossSpec(Strict):
    """Cross-entropy and its options."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """share of the target spread over all classes"""


# What a full-precision stage takes from the task as it is written, unless it has its own.
STAGE_KEYS = ("batch_size", "optimizer", "schedule", "loss", "augmentation", "precision")


class PretrainSpec(Strict):
    """What a trial's training starts from: nothing (end-to-end), a full-precision network trained
    first, a checkpoint, or a checkpoint trained further in full precision."""

    epochs: Annotated[int, Field(ge=0)] = 0
    """of a full-precision stage before the trial; trained once, shared by all trials; 0: none"""
    checkpoint: str | None = None
    """weights to start from: a state dict (torch, safetensors) or `runs:/RUN/FILE` of MLflow"""
    sha256: str | None = None
    """of the checkpoint; filled in when it is not given, so that another file is noticed"""
    seed: Annotated[int, Field(ge=0)] = 0
    """of the stage, whatever the seed of the trial"""
    batch_size: Annotated[int, Field(ge=2)] | None = None
    """of the stage; this and the keys below: the task's as it is written, when not given"""
    optimizer: OptimizerSpec | None = None
    """of the stage"""
    schedule: LearningRateSpec | None = None
    """of the stage"""
    loss: LossSpec | None = None
    """of the stage"""
    augmentation: Literal["default", "none", "crop-flip"] | None = None
    """of the stage"""
    precision: Literal["fp32", "bf16"] | None = None
    """of the stage"""

    @property
    def active(self) -> bool:
        return self.epochs > 0 or self.checkpoint is not None

    @model_validator(mode="before")
    @classmethod
    def _names_stand_for_specs(cls, data: Any) -> Any:
        return _expanded(data, (("optimizer", "name"), ("schedule", "shape")))


class Task(Strict):
    """Dataset + model + epochs + loss: what a trial trains."""

    dataset: str
    """one of `bitfront datasets`"""
    model: ModelSpec
    """the network; `model: cresnet20` is short for its name alone"""
    epochs: Annotated[int, Field(ge=1)] = 10
    """of one trial"""
    batch_size: Annotated[int, Field(ge=2)] = 128
    """examples a step"""
    optimizer: OptimizerSpec = Field(default_factory=OptimizerSpec)
    """`optimizer: sgd` is short for its name alone"""
    schedule: LearningRateSpec = Field(default_factory=LearningRateSpec)
    """the learning rate, in fractions of training"""
    loss: LossSpec = Field(default_factory=LossSpec)
    """cross-entropy and its options"""
    pretrain: PretrainSpec = Field(default_factory=PretrainSpec)
    """what training starts from; `pretrain: 20` is short for its epochs, `pretrain: FILE` for a
    checkpoint; end-to-end when not given"""
    augmentation: Literal["default", "none", "crop-flip"] = "default"
    """default: what the dataset declares"""
    binarize: Literal["body", "all"] = "body"
    """which layers a plan decides: all, or all but first, last and shortcuts"""
    precision: Literal["fp32", "bf16"] = "fp32"
    """of training; bf16 is mixed precision, evaluation is always fp32"""
    subset: Annotated[int, Field(ge=10)] | None = None
    """search on this many examples only, classes in proportion"""
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """share of the training data that accuracy is measured on"""
    split_seed: Annotated[int, Field(ge=0)] = 0
    """of the train / validation split"""
    data_dir: str | None = None
    """where datasets are; else --data-dir or BITFRONT_DATA"""

    @model_validator(mode="before")
    @classmethod
    def _names_stand_for_specs(cls, data: Any) -> Any:
        """`model: cresnet20`, `schedule: cosine` and `pretrain: 20` are short for long forms."""
        short = (("model", "name"), ("optimizer", "name"), ("schedule", "shape"))
        data = _expanded(data, (*short, ("pretrain", "checkpoint")))
        if isinstance(data, dict) and type(data.get("pretrain")) is int:
            data["pretrain"] = {"epochs": data["pretrain"]}
        return data

    @property
    def stage_settings(self) -> dict[str, Any]:
        """How the full-precision stage is trained: its own settings, else the task's."""
        own = {key: getattr(self.pretrain, key) for key in STAGE_KEYS}
        return {k: getattr(self, k) if v is None else v for k, v in own.items()}

    def with_settled_stage(self) -> Task:
        """The same task with the stage's settings written out: what a search changes between
        trials then changes nothing about the stage they share."""
        pretrain = self.pretrain.model_copy(update=self.stage_settings)
        return self.model_copy(update={"pretrain": pretrain})


def _expanded(data: Any, short: Sequence[tuple[str, str]]) -> Any:
    """The mapping with every single word under a key of `short` written as `{field: word}`."""
    if not isinstance(data, dict):
        return data
    return {
        **data,
        **{k: {field: data[k]} for k, field in short if isinstance(data.get(k), str)},
    }


class TrialSpec(Strict):
    """One trial: a task, one point of the space and a seed. Complete and serialisable."""

    task: Task
    method: str = "fp"
    params: dict[str, Value] = Field(default_factory=dict)
    plan: str
    seed: int = 0

    def canonical(self) -> TrialSpec:
        """The form two specs share exactly when they train the same network the same way: with
        no binary layer in the plan every method is full-precision training, and a default that is
        written out is the default."""
        from trainables.methods import METHODS

        if set(self.plan) <= {"F"}:
            return self.model_copy(update={"method": "fp", "params": {}})
        params = METHODS.get(self.method)(self.params).values
        return self.model_copy(update={"params": params})

    def fingerprint(self, search: str = "", length: int = 8) -> str:
        """The trial's id: a short hash of the search's name, the parameters and the seed. Where
        the data and a checkpoint lie is no part of it."""
        content = self.canonical().model_dump(mode="json")
        content["task"].pop("data_dir")
        content["task"] |= _what_it_starts_from(self.task.pretrain, content["task"].pop("pretrain"))
        text = json.dumps([search, content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:length]


def _what_it_starts_from(pretrain: PretrainSpec, content: dict[str, Any]) -> dict[str, Any]:
    """The part of `pretrain` that makes a difference, under its key; nothing end-to-end."""
    if not pretrain.active:
        return {}
    if not pretrain.epochs:
        return {"pretrain": {"checkpoint": pretrain.sha256 or pretrain.checkpoint}}
    checkpoint = pretrain.sha256 or pretrain.checkpoint
    return {"pretrain": {**content, "checkpoint": checkpoint, "sha256": None}}


def with_overrides(task: Task, overrides: dict[str, Any]) -> Task:
    """The task with dotted keys replaced: `{"optimizer.lr": 0.1, "model.width": 8}`."""
    data = task.model_dump()
    for path, value in overrides.items():
        *parents, leaf = path.split(".")
        node = data
        for parent in parents:
            node = node[parent]
        node[leaf] = value
    return Task.model_validate(data)
