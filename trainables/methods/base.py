"""What a method declares and which hooks it has. Listings, docs/catalog.md, the conditional
parameters of a space and the conformance tests read the declaration; the training loop calls the
hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables import layers
from bitfront.trainables.papers import citation, paper_of
from bitfront.trainables.parameters import Param, Value, resolve
from bitfront.trainables.registry import Registry
from bitfront.trainables.training.schedules.phases import Phase

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from bitfront.trainables.costs.base import KeptChannels, LayerTrace
    from bitfront.trainables.layers.binary import BinaryLayer
    from bitfront.trainables.layers.latents import Averaged
    from bitfront.trainables.settings import LearningRateSpec


class Method:
    """A way to obtain binary weights (and activations).

    A subclass sets the declaration and overrides the hooks it needs. One instance serves one
    training run. `layers`, set by `bind`, are the binary layers of the network; `examples`, set by
    the training loop, is the number of training examples.
    """

    name: ClassVar[str]
    family: ClassVar[str]
    paper: ClassVar[str]
    """the key of one of `trainables.papers`, or a citation"""
    doc: ClassVar[str]
    levels: ClassVar[str] = "FWB"
    params: ClassVar[dict[str, Param]] = {}
    adversary: ClassVar[str | None] = None
    """the attack it trains against where `task.attack.train` names none"""
    adversary_fixed: ClassVar[bool] = False
    """whether it uses `adversary` whatever `task.attack.train` names"""
    trains_full: ClassVar[bool] = False
    """whether it is itself a way to train a network without binary layers; elsewhere the method of
    such a network is called `fp`"""
    from_weights: ClassVar[bool] = True
    """whether it can start from pretrained weights (`task.pretrain`)"""

    def __init__(self, given: dict[str, Any] | None = None) -> None:
        self.values: dict[str, Value] = resolve(self.name, self.params, given or {})
        self.layers: list[BinaryLayer] = []
        self.learning_rate = 0.0  # of the present step; set before the hooks are called
        self.examples = 1
        self._before: list[Tensor] = []

    @property
    def soft(self) -> bool:
        """Whether training computes with other weights or inputs than the signs of evaluation."""
        return False

    @property
    def scale(self) -> str:
        """How many scales a binary layer keeps: `none`, one per `layer`, one per output channel
        (any other word)."""
        return str(self.values.get("scale", "none"))

    @property
    def shifts_inputs(self) -> bool:
        """Whether B and A layers keep one number per input channel."""
        return False

    def weight_quantizer(self, layer: nn.Module) -> nn.Module:
        """The parametrization of one binary layer's weight."""
        raise NotImplementedError(f"{self.name} makes no binary layers")

    def sparse_weight(self, layer: nn.Module) -> nn.Module:
        """The parametrization of the weight of one layer of level S."""
        raise NotImplementedError(f"{self.name} makes no pruned layers in full precision")

    def kept(self, sizes: Mapping[str, int]) -> dict[str, int] | None:
        """How many weights each planned layer keeps, by name, given the layers' numbers of weights;
        None: the method does not prune. Raises a UserError where a layer would keep none."""
        return None

    def kept_channels(self, traced: Sequence[LayerTrace]) -> dict[str, KeptChannels]:
        """What is left of the layers whose channels the method removes, by name."""
        return {}

    def input_quantizer(self, layer: nn.Module) -> nn.Module:
        """The quantizer of the input of one layer of level B or A."""
        raise NotImplementedError(f"{self.name} makes no binary activations")

    def accumulate(self, layer: nn.Module, quantizer: nn.Module) -> None:
        """Give one layer of level A its accumulator; `quantizer` is the one of its weight."""
        raise NotImplementedError(f"{self.name} makes no narrow accumulators")

    @contextmanager
    def as_trained(self) -> Iterator[None]:
        """Inside, evaluation uses the forward pass of training."""
        yield

    @property
    def draws(self) -> int:
        """How many forward and backward passes a training step averages over."""
        return 1

    def own_optimizer(self) -> Optimizer | None:
        """A new optimizer of the latents; None: the task's optimizer updates them too. Called after
        a phase is entered. Its learning rate is `lr` of `values`, on the task's schedule. All other
        parameters keep the task's optimizer."""
        return None

    def rate_path(self, of_task: LearningRateSpec) -> LearningRateSpec:
        """How the learning rate of its own optimizer changes; by default as the task's does."""
        return of_task

    @property
    def mean_every(self) -> int:
        """After how many epochs `predictions` are measured again; 0: only after the last one."""
        return int(self.values.get("mean_every", 0))

    def predictions(
        self, model: nn.Module, combine: Callable[[Tensor, str], Tensor], seed: int
    ) -> Averaged | None:
        """The network that predicts with the mean over draws of its weights; None: the method draws
        none. `combine` makes one output from those of all draws."""
        return None

    def bind(self, made: Sequence[BinaryLayer]) -> None:
        """Receive the layers that a plan made binary."""
        self.layers = list(made)

    def attach(self, model: nn.Module, shape: Sequence[int]) -> None:
        """Receive the whole network, its plan applied, and the shape of its examples."""

    def starts_from(self) -> tuple[dict[str, Value], int] | None:
        """(parameters, seed) of the training of the same task and plan by this method whose weights
        this one starts from; None: there is none."""
        return None

    def phases(self, epochs: int) -> Sequence[Phase]:
        """The phases that the epochs of a trial are divided into; schedules and optimizer start
        anew in each."""
        return [Phase("train", epochs)]

    def enter(self, phase: Phase) -> None:
        """Called when a phase begins, with its starting weights loaded, and when a run that was
        interrupted in it is resumed, before its state is restored. The first phase is entered a
        second time where pretrained weights are loaded; its optimizer is already made then."""

    def before_epoch(self) -> None:
        """Called before the first step of every epoch."""
        self._before = [layer.hard_parts()[0] for layer in self.layers]

    def before_step(self, fraction: float) -> None:
        """Called before every optimizer step with the fraction of the phase that has passed."""

    def penalty(self) -> Tensor | None:
        """The term that is added to the loss of the last forward pass; None: there is none."""
        return None

    def after_backward(self) -> None:
        """Called after the backward pass, before the optimizer uses the gradients."""

    def after_step(self) -> None:
        """Called after every optimizer step."""

    def before_evaluation(self) -> None:
        """Called before the hard-binarized network is evaluated; `diagnose` follows."""

    def after_epoch(self, history: Sequence[dict[str, float]]) -> None:
        """Called after every epoch with the metrics of all epochs so far."""

    def diagnose(self) -> dict[str, float]:
        """The diagnostics after an epoch, by name: those of `layers.diagnostics`."""
        return layers.diagnose(self.layers, self._before) if self._before else {}

    @classmethod
    def describe(cls) -> dict[str, Any]:
        """The machine-readable form `bitfront methods --json` prints."""
        return {
            "name": cls.name,
            "family": cls.family,
            "paper": citation(cls.paper),
            "link": found.link or None if (found := paper_of(cls.paper)) else None,
            "doc": cls.doc,
            "levels": list(cls.levels),
            "params": {name: param.describe() for name, param in cls.params.items()},
        }


METHODS: Registry[type[Method]] = Registry("method", package=__package__)


def build_method(name: str, params: dict[str, Any]) -> Method:
    """The method of that name with these parameters, checked."""
    return METHODS.get(name)(params)
