"""What a trial trains, as plain validated data: the task, one point of the space and the seed. A
search YAML, a ledger entry and a recipe all carry these models. The parts of a task are in
`settings`; torch is not imported here."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from bitfront.trainables.methods import METHODS
from bitfront.trainables.parameters import Value, without_later
from bitfront.trainables.plan import BINARY_INPUTS
from bitfront.trainables.settings import (
    PRETRAINING_KEYS,
    TREATED_INPUTS,
    Activations,
    AttackSpec,
    Augmentation,
    Binarize,
    CrossEntropySpec,
    LearningRateSpec,
    LossSpec,
    ModelSpec,
    OptimizerSpec,
    PretrainSpec,
    Strict,
    expanded,
    old_word,
    settled_activations,
)


class Task(Strict):
    """Dataset + model + epochs + loss: what a trial trains."""

    dataset: str
    """one of `bitfront datasets`, data of your own (`my_data.py:load`, `folder:NAME:SIZE`,
    `hf:PATH`, `arrays:FILE`) or image sequences to track (`sequences:NAME`)"""
    data: dict[str, Value] = Field(default_factory=dict)
    """arguments of the function that returns data of your own"""
    model: ModelSpec
    """the network; `model: cresnet20` is short for its name alone"""
    epochs: Annotated[int, Field(ge=1)] = 10
    """epochs of one trial"""
    batch_size: Annotated[int, Field(ge=2)] = 128
    """examples per step"""
    optimizer: OptimizerSpec = Field(default_factory=OptimizerSpec)
    """`optimizer: sgd` is short for its name alone"""
    schedule: LearningRateSpec = Field(default_factory=LearningRateSpec)
    """the learning rate, in fractions of training"""
    loss: LossSpec = Field(default_factory=LossSpec)
    """cross-entropy and its options"""
    metrics: list[str] = Field(default_factory=list)
    """metrics of your own, measured on the validation part after every epoch:
    `my_metrics.py:f1`, a function of outputs and targets, is the metric `val_f1`"""
    attack: AttackSpec = Field(default_factory=AttackSpec)
    """adversarial training and robust accuracy; clean training when not given"""
    pretrain: PretrainSpec = Field(default_factory=PretrainSpec)
    """what training starts from; `pretrain: 20` is short for its epochs, `pretrain: FILE` for a
    checkpoint; end-to-end when not given"""
    augmentation: Augmentation = "default"
    """default: what the dataset declares"""
    normalize: Literal["dataset", "imagenet"] = "dataset"
    """mean and deviation of pixels: the dataset's own, or ImageNet's as many checkpoints expect"""
    binarize: Binarize = "body"
    """which layers a plan decides: body: all but first, last and shortcuts; all; or a list of names
    of layers, of modules with layers in them, and patterns such as `stage3.*`"""
    keep_full: list[str] = Field(default_factory=list)
    """names and patterns of layers that stay in full precision, whatever `binarize` says"""
    activations: Activations = "keep"
    """what gives binary activations something to say: behind a ReLU every sign is +1. norm, shift:
    a batch norm, or a learned shift from the mean, before the sign of every B and A layer; binrelu,
    hardtanh, rprelu: in place of every ReLU, GELU, SiLU and the like; keep: nothing; auto: norm for
    networks of timm, of torchvision and of your own, keep for the models of `bitfront models`"""
    precision: Literal["fp32", "bf16"] = "fp32"
    """precision of training; bf16 is mixed precision, evaluation is always fp32"""
    keep: Literal["last", "best"] = "last"
    """which epoch of the last phase a trial ends with: the last one, or the one of the highest
    validation quality (under attack: of the first robust accuracy measured every epoch)"""
    measure_train: Literal["never", "end", "epochs"] = "never"
    """when the quality of the hard-binarized network on all training examples is measured, in
    evaluation mode and without augmentation, as `train_accuracy`: never, for the network that a
    trial ends with, or after every epoch, which takes about a third longer"""
    subset: Annotated[int, Field(ge=10)] | None = None
    """search on this many examples only, classes in proportion"""
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """share of the training data that accuracy is measured on"""
    split_seed: Annotated[int, Field(ge=0)] = 0
    """seed of the split into training and validation part"""
    data_dir: str | None = None
    """where datasets are; else --data-dir or BITFRONT_DATA"""

    @model_validator(mode="before")
    @classmethod
    def _names_stand_for_specs(cls, data: Any) -> Any:
        """`model: cresnet20`, `schedule: cosine` and `pretrain: 20` are short for long forms."""
        short = (("model", "name"), ("optimizer", "name"), ("schedule", "shape"))
        data = expanded(data, (*short, ("pretrain", "checkpoint")))
        if isinstance(data, dict) and type(data.get("pretrain")) is int:
            data["pretrain"] = {"epochs": data["pretrain"]}
        return data

    @property
    def pretraining_settings(self) -> dict[str, Any]:
        """The settings of pretraining by key: those of `pretrain`, else those of the task."""
        own = {key: getattr(self.pretrain, key) for key in PRETRAINING_KEYS}
        settings = {k: getattr(self, k) if v is None else v for k, v in own.items()}
        settings["loss"] = LossSpec(label_smoothing=settings["loss"].label_smoothing)
        return settings

    @property
    def declared(self) -> bool:
        """Whether the network is one of `bitfront models`, not of a library or of the user's
        own."""
        return "/" not in self.model.name and ":" not in self.model.name

    @property
    def settled_activations(self) -> Activations:
        """What happens to activations: never `auto`."""
        return settled_activations(self.activations, self.declared)

    def with_settled_pretraining(self) -> Task:
        """The same task with all settings of pretraining written out, so that keys of the task that
        a search changes between trials do not change the pretraining they share."""
        settings = self.pretraining_settings
        settings["loss"] = CrossEntropySpec(label_smoothing=settings["loss"].label_smoothing)
        pretrain = self.pretrain.model_copy(update=settings)
        return self.model_copy(update={"pretrain": pretrain})


class TrialSpec(Strict):
    """One trial: a task, one point of the space and a seed. Complete and serialisable."""

    task: Task
    method: str = "fp"
    params: dict[str, Value] = Field(default_factory=dict)
    plan: str
    seed: int = 0

    @property
    def adversary(self) -> str:
        """The attack of training: the task's, unless the method has one of its own."""
        method, train = METHODS.get(self.method), self.task.attack.train
        if method.adversary is not None and (method.adversary_fixed or train == "none"):
            return method.adversary
        return train

    def canonical(self) -> TrialSpec:
        """The normal form, which is equal for two specs that train the same network in the same
        way: where the plan has no binary layer the method is `fp`, or one that names the training
        of whole networks, without parameters; where it has no binary input none is treated; and
        all parameters of the method are written out."""
        activations = self.task.settled_activations
        if activations in TREATED_INPUTS and not set(self.plan) & set(BINARY_INPUTS):
            activations = "keep"
        task = self.task.model_copy(update={"activations": activations})
        if set(self.plan) <= {"F"}:
            attack = task.attack.model_copy(update={"train": self.adversary})
            task = task.model_copy(update={"attack": attack})
            method = self.method if METHODS.get(self.method).trains_full else "fp"
            return self.model_copy(update={"task": task, "method": method, "params": {}})
        params = METHODS.get(self.method)(self.params).values
        return self.model_copy(update={"task": task, "params": params})

    def fingerprint(self, search: str = "", length: int = 8) -> str:
        """The trial's id: a short hash of the search's name, the parameters and the seed. The paths
        of the data and of a checkpoint are not part of it. Keys that were added after version 0.1
        enter it only where they are used, so that older ids stay the same."""
        content = self.canonical().model_dump(mode="json")
        if set(self.plan) <= {"F"}:
            content["method"] = "fp"  # the attack tells `at` and `trades` apart
        content["params"] = without_later(METHODS.get(self.method).params, content["params"])
        content["task"].pop("data_dir")
        content["task"].pop("data")  # they are in the name of the dataset
        content["task"].pop("measure_train")  # nothing of the training depends on it
        for holder in (content["task"], content["task"]["pretrain"]):
            if holder["optimizer"] is not None and not holder["optimizer"]["nesterov"]:
                del holder["optimizer"]["nesterov"]
        content["task"] |= _what_it_starts_from(self.task.pretrain, content["task"].pop("pretrain"))
        if content["task"]["normalize"] == "dataset":
            del content["task"]["normalize"]
        if content["task"]["activations"] == "keep":
            del content["task"]["activations"]
        if not content["task"]["metrics"]:
            del content["task"]["metrics"]
        if content["task"]["keep"] == "last":
            del content["task"]["keep"]
        if not content["task"]["keep_full"]:
            del content["task"]["keep_full"]
        content["task"]["attack"].pop("final_examples")  # nothing of the trial depends on it
        if not self.task.attack.active and self.adversary == "none":
            del content["task"]["attack"]
        content["task"]["loss"] |= _whom_it_learns_from(content["task"]["loss"].pop("distill"))
        text = json.dumps([search, content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:length]


def _what_it_starts_from(pretrain: PretrainSpec, content: dict[str, Any]) -> dict[str, Any]:
    """{"pretrain": its keys that change the training}; {} where training is end-to-end."""
    if not pretrain.active:
        return {}
    checkpoint = pretrain.sha256 or pretrain.checkpoint
    if not pretrain.epochs and not pretrain.binary_epochs:
        return {"pretrain": {"checkpoint": checkpoint}}
    if not pretrain.binary_epochs:
        del content["binary_epochs"], content["binary_dataset"]
    return {"pretrain": {**content, "checkpoint": checkpoint, "sha256": None}}


def _whom_it_learns_from(distill: dict[str, Any]) -> dict[str, Any]:
    """{"distill": its keys that change the training}; {} without a teacher."""
    if distill["kind"] == "none":
        return {}
    teacher = distill["sha256"] or old_word(distill["teacher"])
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
