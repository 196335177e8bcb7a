"""What a trial trains, as plain validated data: the task, the point of the space and the seed.
A search YAML, a ledger entry and a recipe all carry these models; nothing here knows torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bitfront.trainables.errors import quoted
from bitfront.trainables.numbers import refuse_truths
from bitfront.trainables.parameters import Value
from bitfront.trainables.text_files import LARGEST_INTEGER

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Augmentation = Literal["default", "none", "crop-flip", "affine-flip", "resized-crop-flip"]


class Strict(BaseModel):
    """Unknown keys are errors, everywhere."""

    # Built when first used: a command needs few of them.
    model_config = ConfigDict(
        extra="forbid", validate_default=True, allow_inf_nan=False, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, data: Any) -> Any:
        refuse_truths(cls, data)
        return data

    @model_validator(mode="after")
    def _numbers_are_of_this_world(self) -> Self:
        """Also where digits stand in quotes: what is larger could not be read back."""
        for name in self.model_fields_set:
            value = getattr(self, name)
            if type(value) is int and abs(value) > LARGEST_INTEGER:
                raise ValueError(f"{name}: {quoted(str(value))} is too large a number")
        return self


class ModelSpec(BaseModel):
    """A model by name and its parameters (`bitfront models` lists both)."""

    model_config = ConfigDict(extra="allow")

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
    nesterov: bool = False
    """of sgd: the momentum of Nesterov"""


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


Weight = Annotated[float, Field(ge=0)]


class DistillSpec(Strict):
    """Learning from a teacher in full precision (methods.md 1.11, protocol 4, and 3.4)."""

    kind: Literal["none", "logits", "bibert"] = "none"
    """logits: the teacher's soft targets; bibert: also Q, K, V similarities and hidden states of
    a transformer, and labels; `distill: bibert` is short for this key"""
    teacher: str = "stage"
    """stage: the full-precision network `pretrain` gives; else a file: a packed checkpoint, a
    state dict of the same model, or a recipe, which is trained once and kept; or the name of a
    ready-made recipe: wideresnet22-cifar10, wideresnet22-cifar100"""
    sha256: str | None = None
    """of the teacher's file; filled in when it is not given, so that another file is noticed"""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """of the soft targets"""
    soft: Weight = 1.0
    """weight of the teacher's soft targets"""
    hard: Weight | None = None
    """weight of the labels' cross-entropy; 0 for logits and 0.5 for bibert when not given"""
    similarity: Weight = 1.0
    """weight of the Q, K, V similarities of every attention (bibert)"""
    hidden: Weight = 1.0
    """weight of the hidden states: what enters the first block and leaves each (bibert)"""

    @property
    def hard_weight(self) -> float:
        if self.hard is not None:
            return self.hard
        return 0.5 if self.kind == "bibert" else 0.0

    @property
    def teacher_file(self) -> str | None:
        return None if self.teacher == "stage" else self.teacher


class CrossEntropySpec(Strict):
    """Cross-entropy with the labels."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """share of the target spread over all classes"""


class LossSpec(CrossEntropySpec):
    """Cross-entropy and its options."""

    distill: DistillSpec = Field(default_factory=DistillSpec)
    """learning from a teacher; no teacher when not given"""

    @model_validator(mode="before")
    @classmethod
    def _names_stand_for_specs(cls, data: Any) -> Any:
        return _expanded(data, (("distill", "kind"),))


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
    binary_epochs: Annotated[int, Field(ge=0)] = 0
    """of binary training before the trial's own, with its method and plan but no teacher, from
    the stage's weights (methods.md 1.11, protocol 3); trials that share those share it"""
    binary_dataset: str | None = None
    """of the binary epochs, images of the same shape; the task's when not given"""
    batch_size: Annotated[int, Field(ge=2)] | None = None
    """of the stage; this and the keys below: the task's as it is written, when not given"""
    optimizer: OptimizerSpec | None = None
    """of the stage"""
    schedule: LearningRateSpec | None = None
    """of the stage"""
    loss: CrossEntropySpec | None = None
    """of the stage, which has no teacher"""
    augmentation: Augmentation | None = None
    """of the stage"""
    precision: Literal["fp32", "bf16"] | None = None
    """of the stage"""

    @property
    def active(self) -> bool:
        return self.epochs > 0 or self.binary_epochs > 0 or self.checkpoint is not None

    @model_validator(mode="before")
    @classmethod
    def _names_stand_for_specs(cls, data: Any) -> Any:
        return _expanded(data, (("optimizer", "name"), ("schedule", "shape")))


def _as_pixels(value: Any) -> Any:
    """`8/255` is how everybody writes it."""
    if isinstance(value, str) and value.count("/") == 1:
        above, _, below = value.partition("/")
        try:
            return float(above) / float(below)
        except (ValueError, ZeroDivisionError):
            return value
    return value


# A change of pixels in [0, 1].
Pixels = Annotated[float, BeforeValidator(_as_pixels), Field(gt=0, le=1)]
TrainingAttack = Literal["none", "pgd", "fgsm-atta", "trades"]
Evaluation = Literal["fgsm", "pgd10", "pgd20", "pgd50", "autoattack"]
NO_EPS = "eps is missing: how far a pixel in [0, 1] may be changed, for example 8/255"


class AttackSpec(Strict):
    """Attacks on the images (l_inf): those training is made robust against, and those robust
    accuracy is measured under (methods.md 5.5, 5.12)."""

    eps: Pixels | None = None
    """how far every pixel, in [0, 1], may be changed: 0.03 or 8/255; has no default"""
    train: TrainingAttack = "none"
    """none: clean training; pgd: on the worst images PGD finds; fgsm-atta: one step from the
    perturbation of the visit before; trades: clean loss and agreement with the attacked image"""
    steps: Annotated[int, Field(ge=1)] = 10
    """of pgd and trades"""
    step: Pixels | None = None
    """of one step, in pixels; eps/4 when not given, eps/2 for fgsm-atta"""
    iterate: Literal["last", "worst"] = "last"
    """which image of pgd is trained on: the last one, or the one of greatest loss among those
    whose loss was computed"""
    norms: Literal["train", "eval"] = "train"
    """batch norms while pgd and fgsm-atta look for the image: statistics of the batch, which are
    kept too, or the running ones; trades always uses the running ones"""
    beta: Annotated[float, Field(ge=0)] = 6.0
    """weight of agreement in trades"""
    soft_labels: bool = True
    """fgsm-atta trains on labels averaged over its visits"""
    shrink: Annotated[int, Field(ge=1, le=64)] = 1
    """fgsm-atta keeps perturbations at this fraction of the resolution; 8 for large images"""
    memory_mb: Annotated[float, Field(gt=0)] = 1024.0
    """what perturbations may take: a byte a channel of every pixel, the margin of crops too"""
    evaluate: list[Evaluation] = Field(default_factory=list)
    """robust accuracy under these: `val_robust_pgd20` and so on; autoattack only after the last
    epoch; an objective is added to them"""
    examples: Annotated[int, Field(ge=1)] = 1000
    """of the validation part that are attacked; autoattack on all takes hours"""

    @property
    def active(self) -> bool:
        return self.train != "none" or bool(self.evaluate)

    @model_validator(mode="after")
    def _eps_is_given(self) -> Self:
        if self.active and self.eps is None:
            raise ValueError(NO_EPS)
        return self


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
    attack: AttackSpec = Field(default_factory=AttackSpec)
    """adversarial training and robust accuracy; clean training when not given"""
    pretrain: PretrainSpec = Field(default_factory=PretrainSpec)
    """what training starts from; `pretrain: 20` is short for its epochs, `pretrain: FILE` for a
    checkpoint; end-to-end when not given"""
    augmentation: Augmentation = "default"
    """default: what the dataset declares"""
    normalize: Literal["dataset", "imagenet"] = "dataset"
    """mean and deviation of pixels: the dataset's own, or ImageNet's as many checkpoints expect"""
    binarize: Literal["body", "all"] = "body"
    """which layers a plan decides: all, or all but first, last and shortcuts"""
    precision: Literal["fp32", "bf16"] = "fp32"
    """of training; bf16 is mixed precision, evaluation is always fp32"""
    keep: Literal["last", "best"] = "last"
    """which epoch of the last phase a trial ends with: the last one, or the one of the highest
    validation quality (under attack: of the first robust accuracy measured every epoch)"""
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
        settings = {k: getattr(self, k) if v is None else v for k, v in own.items()}
        settings["loss"] = LossSpec(label_smoothing=settings["loss"].label_smoothing)
        return settings

    def with_settled_stage(self) -> Task:
        """The same task with the stage's settings written out: what a search changes between
        trials then changes nothing about the stage they share."""
        settings = self.stage_settings
        settings["loss"] = CrossEntropySpec(label_smoothing=settings["loss"].label_smoothing)
        pretrain = self.pretrain.model_copy(update=settings)
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

    @property
    def adversary(self) -> str:
        """How training meets attacks: as the task says, unless the method has a say."""
        from bitfront.trainables.methods import METHODS

        method, train = METHODS.get(self.method), self.task.attack.train
        if method.adversary is not None and (method.adversary_fixed or train == "none"):
            return method.adversary
        return train

    def canonical(self) -> TrialSpec:
        """The form two specs share exactly when they train the same network the same way: with
        no binary layer in the plan every method is full-precision training, and a default that is
        written out is the default."""
        from bitfront.trainables.methods import METHODS

        if set(self.plan) <= {"F"}:
            attack = self.task.attack.model_copy(update={"train": self.adversary})
            task = self.task.model_copy(update={"attack": attack})
            return self.model_copy(update={"task": task, "method": "fp", "params": {}})
        params = METHODS.get(self.method)(self.params).values
        return self.model_copy(update={"params": params})

    def fingerprint(self, search: str = "", length: int = 8) -> str:
        """The trial's id: a short hash of the search's name, the parameters and the seed. Where
        the data and a checkpoint lie is no part of it."""
        content = self.canonical().model_dump(mode="json")
        content["task"].pop("data_dir")
        for holder in (content["task"], content["task"]["pretrain"]):
            if holder["optimizer"] is not None and not holder["optimizer"]["nesterov"]:
                del holder["optimizer"]["nesterov"]  # ids of before there was a choice
        content["task"] |= _what_it_starts_from(self.task.pretrain, content["task"].pop("pretrain"))
        if content["task"]["normalize"] == "dataset":  # ids of before there was a choice
            del content["task"]["normalize"]
        if content["task"]["keep"] == "last":  # ids of before there was a choice
            del content["task"]["keep"]
        if not self.task.attack.active and self.adversary == "none":  # ids of before attacks
            del content["task"]["attack"]
        content["task"]["loss"] |= _whom_it_learns_from(content["task"]["loss"].pop("distill"))
        text = json.dumps([search, content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:length]


def _what_it_starts_from(pretrain: PretrainSpec, content: dict[str, Any]) -> dict[str, Any]:
    """The part of `pretrain` that makes a difference, under its key; nothing end-to-end."""
    if not pretrain.active:
        return {}
    checkpoint = pretrain.sha256 or pretrain.checkpoint
    if not pretrain.epochs and not pretrain.binary_epochs:
        return {"pretrain": {"checkpoint": checkpoint}}
    if not pretrain.binary_epochs:
        del content["binary_epochs"], content["binary_dataset"]
    return {"pretrain": {**content, "checkpoint": checkpoint, "sha256": None}}


def _whom_it_learns_from(distill: dict[str, Any]) -> dict[str, Any]:
    """The part of `distill` that makes a difference, under its key; nothing without a teacher."""
    if distill["kind"] == "none":
        return {}
    teacher = distill["sha256"] or distill["teacher"]
    return {"distill": {**distill, "teacher": teacher, "sha256": None}}


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
