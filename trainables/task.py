"""What a trial trains, as plain validated data: the task, the point of the space and the seed.
A search YAML, a ledger entry and a recipe all carry these models; nothing here knows torch."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainables.parameters import Value

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Augmentation = Literal["default", "none", "crop-flip", "affine-flip", "resized-crop-flip"]


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

    shape: Literal["constant", "linear", "cosine", "exponential", "steps"] = "cosine"
    """how the learning rate falls; `schedule: cosine` is short for this key"""
    warmup: Fraction = 0.0
    """fraction of training over which it rises first"""
    end_factor: Annotated[float, Field(ge=0)] = 0.0
    """the last learning rate as a share of lr (linear, cosine; exponential needs one above 0)"""
    at: list[Fraction] = Field(default_factory=lambda: [0.5, 0.75])
    """fractions of training at which steps come"""
    factor: Annotated[float, Field(gt=0)] = 0.1
    """what each step multiplies with"""

    @model_validator(mode="after")
    def _exponential_decay_has_an_end(self) -> Self:
        if self.shape == "exponential" and self.end_factor == 0:
            raise ValueError("an exponential schedule needs an end_factor above 0")
        return self


class LossSpec(Strict):
    """Cross-entropy and its options."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """share of the target spread over all classes"""


class Task(Strict):
    """Dataset + model + epochs + loss: what a trial trains."""

    dataset: str
    """one of `bitfront datasets`, images of your own (`folder:NAME:SIZE`) or image sequences to
    track (`sequences:NAME`)"""
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
    augmentation: Augmentation = "default"
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
        """`model: cresnet20` and `schedule: cosine` are short for their long forms."""
        if isinstance(data, dict):
            data = dict(data)
            for key, field in (("model", "name"), ("optimizer", "name"), ("schedule", "shape")):
                if isinstance(data.get(key), str):
                    data[key] = {field: data[key]}
        return data


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

    def fingerprint(self, search: str = "") -> str:
        """The trial's id: a short hash of the search's name, the parameters and the seed. Where
        the data lies is no part of it."""
        content = self.canonical().model_dump(mode="json")
        content["task"].pop("data_dir")
        text = json.dumps([search, content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


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
