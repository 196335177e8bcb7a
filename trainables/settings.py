"""The sections of a task as validated data: model, optimizer, learning rate, loss, teacher,
pretraining, attacks. `task.Task` combines them; torch is not imported here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bitfront.trainables.attacks import EVALUATION_ATTACKS, TRAINING_ATTACKS
from bitfront.trainables.data.augmentations import AUGMENTATIONS
from bitfront.trainables.errors import did_you_mean, quoted
from bitfront.trainables.numbers import refuse_truths
from bitfront.trainables.structure.scope import SCOPES
from bitfront.trainables.text_files import LARGEST_INTEGER

if TYPE_CHECKING:
    Augmentation = str
else:
    Augmentation = Literal["default", *AUGMENTATIONS]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Activations = Literal["auto", "keep", "norm", "shift", "binrelu", "hardtanh", "rprelu"]
# What `auto` stands for in networks of a library or of the user's own.
AUTO_ACTIVATIONS: Activations = "norm"
# The numbers per input channel that a layer with binary inputs stores for its treatment.
TREATED_INPUTS = {"norm": 2, "shift": 1}
# The choices that replace activations of the network.
REPLACEMENTS = ("binrelu", "hardtanh", "rprelu")


def settled_activations(activations: Activations, declared: bool) -> Activations:
    """What happens to activations: never `auto`. `declared`: the network is one of `bitfront
    models`."""
    if activations != "auto":
        return activations
    return "keep" if declared else AUTO_ACTIVATIONS


def _scope(given: Any) -> Any:
    """A word of `task.binarize`, or the list of names and patterns it is."""
    if isinstance(given, str) and given not in SCOPES:
        raise ValueError(
            f"{quoted(given)} is not known, {did_you_mean(given, SCOPES)}, or a list of layers"
        )
    return given


Binarize = Annotated[
    str | Annotated[list[str], Field(min_length=1)],
    BeforeValidator(_scope),
]


class Strict(BaseModel):
    """A pydantic model in which unknown keys are errors."""

    # Validators are built at first use, since a command needs only a few of them.
    model_config = ConfigDict(
        extra="forbid", validate_default=True, allow_inf_nan=False, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, data: Any) -> Any:
        refuse_truths(cls, data)
        return data

    @model_validator(mode="after")
    def _integers_fit_64_bits(self) -> Self:
        """Refuse larger integers, also where the digits stand in quotes: they could not be read
        back."""
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
    """optimizer of latent weights and of everything in full precision"""
    lr: Annotated[float, Field(gt=0)] = 3e-3
    """learning rate at its highest"""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """on all parameters, latents included"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """momentum of sgd"""
    nesterov: bool = False
    """whether sgd uses Nesterov's momentum"""


class LearningRateSpec(Strict):
    """How the learning rate changes, in fractions of training."""

    shape: Literal["constant", "linear", "cosine", "exponential", "steps"] = "cosine"
    """how the learning rate falls; `schedule: cosine` is short for this key"""
    warmup: Fraction = 0.0
    """fraction of training over which it rises first"""
    end_factor: Annotated[float, Field(ge=0)] = 0.0
    """the last learning rate as a share of lr (linear, cosine; exponential needs one above 0)"""
    at: list[Fraction] = Field(default_factory=lambda: [0.5, 0.75])
    """fractions of training at which `shape: steps` changes the rate"""
    factor: Annotated[float, Field(gt=0)] = 0.1
    """factor of the rate at each of these steps"""

    @model_validator(mode="after")
    def _exponential_decay_has_an_end(self) -> Self:
        if self.shape == "exponential" and self.end_factor == 0:
            raise ValueError("an exponential schedule needs an end_factor above 0")
        return self


Weight = Annotated[float, Field(ge=0)]


# The value of `teacher` that stands for the pretrained network; version 0.1 called it `stage`.
PRETRAINING, _STAGE = "pretraining", "stage"


def _without_old_word(teacher: Any) -> Any:
    return PRETRAINING if teacher == _STAGE else teacher


def old_word(teacher: str) -> str:
    """The teacher in the words of version 0.1, which the ids of trials are computed from."""
    return _STAGE if teacher == PRETRAINING else teacher


class DistillSpec(Strict):
    """Learning from a teacher in full precision (docs/methods.md 1.11, protocol 4, and 3.4)."""

    kind: Literal["none", "logits", "bibert"] = "none"
    """logits: the teacher's soft targets; bibert: also Q, K, V similarities and hidden states of
    a transformer, and labels; `distill: bibert` is short for this key"""
    teacher: Annotated[str, BeforeValidator(_without_old_word)] = PRETRAINING
    """pretraining: the full-precision network that `pretrain` trains; else a file: a packed
    checkpoint, a state dict of the same model, or a recipe, which is trained once and kept; or the
    name of a ready-made recipe: wideresnet22-cifar10, wideresnet22-cifar100, deit-t-imagenet,
    deit-s-imagenet, deit-b-imagenet"""
    sha256: str | None = None
    """checksum of the teacher's file; computed when not given, to detect a changed file"""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """temperature of the soft targets"""
    soft: Weight = 1.0
    """weight of the teacher's soft targets"""
    hard: Weight | None = None
    """weight of the labels' cross-entropy; 0 for logits and 0.5 for bibert when not given"""
    similarity: Weight = 1.0
    """weight of the Q, K, V similarities of every attention (bibert)"""
    hidden: Weight = 1.0
    """weight of the hidden states, the input of the first block and the outputs of all (bibert)"""

    @property
    def hard_weight(self) -> float:
        if self.hard is not None:
            return self.hard
        return 0.5 if self.kind == "bibert" else 0.0

    @property
    def teacher_file(self) -> str | None:
        """The file of the teacher; None: the teacher is the pretrained network."""
        return None if self.teacher == PRETRAINING else self.teacher


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
        return expanded(data, (("distill", "kind"),))


# The keys of pretraining whose defaults are those of the task.
PRETRAINING_KEYS = ("batch_size", "optimizer", "schedule", "loss", "augmentation", "precision")


class PretrainSpec(Strict):
    """What a trial's training starts from: nothing (end-to-end), a full-precision network trained
    first, a checkpoint, or a checkpoint trained further in full precision."""

    epochs: Annotated[int, Field(ge=0)] = 0
    """epochs of full-precision training before the trial, done once for all trials; 0: none"""
    checkpoint: str | None = None
    """weights to start from: a state dict (torch, safetensors), a vision transformer of JAX (npz)
    or `runs:/RUN/FILE` of MLflow; `data:FILE` is in the data directory"""
    sha256: str | None = None
    """checksum of the checkpoint; computed when not given, to detect a changed file"""
    seed: Annotated[int, Field(ge=0)] = 0
    """seed of pretraining, independent of the seed of the trial"""
    binary_epochs: Annotated[int, Field(ge=0)] = 0
    """epochs of binary training between pretraining and the trial, with the trial's method and plan
    but no teacher (docs/methods.md 1.11, protocol 3); done once per method and plan"""
    binary_dataset: str | None = None
    """dataset of the binary epochs, with images of the same shape; the task's when not given"""
    batch_size: Annotated[int, Field(ge=2)] | None = None
    """batch size of pretraining; when not given, this and the keys below are as the task has them,
    also where a search draws other values for its trials"""
    optimizer: OptimizerSpec | None = None
    """optimizer of pretraining"""
    schedule: LearningRateSpec | None = None
    """learning-rate schedule of pretraining"""
    loss: CrossEntropySpec | None = None
    """loss of pretraining, which has no teacher"""
    augmentation: Augmentation | None = None
    """augmentation of pretraining"""
    precision: Literal["fp32", "bf16"] | None = None
    """precision of pretraining"""

    @property
    def active(self) -> bool:
        return self.epochs > 0 or self.binary_epochs > 0 or self.checkpoint is not None

    @model_validator(mode="before")
    @classmethod
    def _names_stand_for_specs(cls, data: Any) -> Any:
        return expanded(data, (("optimizer", "name"), ("schedule", "shape")))


def _as_pixels(value: Any) -> Any:
    """The number that `8/255` stands for; anything else as it is."""
    if isinstance(value, str) and value.count("/") == 1:
        above, _, below = value.partition("/")
        try:
            return float(above) / float(below)
        except (ValueError, ZeroDivisionError):
            return value
    return value


# A change of pixels in [0, 1].
Pixels = Annotated[float, BeforeValidator(_as_pixels), Field(gt=0, le=1)]


if TYPE_CHECKING:
    TrainingAttack = str
    Evaluation = str
else:
    # The names that are declared, for validation and for the reference of keys.
    TrainingAttack = Literal["none", *TRAINING_ATTACKS]
    Evaluation = Literal[*EVALUATION_ATTACKS]


NO_EPS = "eps is missing: how far a pixel in [0, 1] may be changed, for example 8/255"


class AttackSpec(Strict):
    """Attacks on the images (l_inf): the one in training, and those under which robust accuracy is
    measured (docs/methods.md 5.5, 5.12)."""

    eps: Pixels | None = None
    """how far every pixel, in [0, 1], may be changed: 0.03 or 8/255; has no default"""
    train: TrainingAttack = "none"
    """none: clean training; pgd: on the worst images PGD finds; fgsm-atta: one step from the
    perturbation of the visit before; trades: clean loss and agreement with the attacked image"""
    steps: Annotated[int, Field(ge=1)] = 10
    """number of steps of pgd and trades"""
    step: Pixels | None = None
    """size of one step, for pixels in [0, 1]; eps/4 when not given, eps/2 for fgsm-atta"""
    iterate: Literal["last", "worst"] = "last"
    """which iterate of pgd is trained on: the last one, or the one of greatest loss among those
    whose loss was computed"""
    norms: Literal["train", "eval"] = "train"
    """mode of batch norms during the attack of pgd and fgsm-atta. train: statistics of the batch,
    which also update the running ones; eval: the running ones, as trades always uses"""
    beta: Annotated[float, Field(ge=0)] = 6.0
    """weight of the KL divergence in trades"""
    soft_labels: bool = True
    """fgsm-atta trains on labels averaged over its visits"""
    shrink: Annotated[int, Field(ge=1, le=64)] = 1
    """fgsm-atta stores perturbations at 1/shrink of the resolution; 8 for large images"""
    memory_mb: Annotated[float, Field(gt=0)] = 1024.0
    """megabytes that perturbations may take: one byte per channel of every pixel, margins
    included"""
    evaluate: list[Evaluation] = Field(default_factory=list)
    """attacks under which robust accuracy is measured, as `val_robust_pgd20` and so on; autoattack
    only after the last epoch; the attack of an objective is added automatically"""
    examples: Annotated[int, Field(ge=1)] = 1000
    """number of validation images that are attacked; autoattack on all takes hours"""
    final_examples: Annotated[int, Field(ge=1)] | None = None
    """number of test images that are attacked after final training; all of them when not given, as
    papers report it"""

    @property
    def active(self) -> bool:
        return self.train != "none" or bool(self.evaluate)

    @model_validator(mode="after")
    def _eps_is_given(self) -> Self:
        if self.active and self.eps is None:
            raise ValueError(NO_EPS)
        return self


def expanded(data: Any, short: Sequence[tuple[str, str]]) -> Any:
    """The mapping with every text under a key of `short` written as `{field: text}`."""
    if not isinstance(data, dict):
        return data
    return {
        **data,
        **{k: {field: data[k]} for k, field in short if isinstance(data.get(k), str)},
    }
