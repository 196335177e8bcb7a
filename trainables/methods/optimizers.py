"""Methods with an optimizer of their own for the binary weights: BayesBiNN and its baselines
(methods.md 2), BNEW and its baselines (methods.md 3). Layers in full precision keep the task's
optimizer. Each can begin with a phase of real weights in [-1, 1], binary inputs as planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables.methods.base import METHODS, LatentMethod
from bitfront.trainables.methods.pcpp import declared_schedule, scheduled
from bitfront.trainables.parameters import Choice, Float, Int, Param
from bitfront.trainables.training.phases import Phase
from bitfront.trainables.training.schedules import Schedule

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bitfront.trainables.layers.binary import Annealed, BinaryLayer
    from bitfront.trainables.layers.latents import Averaged, Latent, Shared

RATES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6)


def rate(default: float) -> Param:
    return Param(
        default,
        Float(1e-9, 100.0),
        "learning rate of the binary weights, on the task's schedule",
        search=Choice(RATES),
    )


def _begins_real(share: float) -> dict[str, Param]:
    return {
        "sign_grad": Param(
            "poly",
            Choice(("poly", "classic")),
            "gradient of the sign on inputs of B layers: max(0, 2 - 2 |x|) or 1[|x| <= 1]",
        ),
        "real_share": Param(
            share,
            Float(0.0, 0.95),
            "share of the epochs with real weights first, clipped to [-1, 1]; the best of them is "
            "made binary",
        ),
    }


class OwnOptimizer(LatentMethod):
    """A method whose latents have their own optimizer."""

    family = "optimizers"
    levels = "FWB"
    # Whether training multiplies with other weights than the signs of evaluation.
    soft_weights: ClassVar[bool] = False

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        self._shared: Shared | None = None
        self._inputs: Annealed | None = None
        self.own: torch.optim.Optimizer | None = None

    @property
    def shared(self) -> Shared:
        if self._shared is None:
            from bitfront.trainables.layers.latents import Shared

            self._shared = Shared()
        return self._shared

    @property
    def soft(self) -> bool:
        return self.soft_weights or self.shared.real

    @contextmanager
    def as_trained(self) -> Iterator[None]:
        with self.shared.trained_weights():
            yield

    def make_latent(self, weight: Tensor) -> Latent:
        """The parametrization of a weight."""
        raise NotImplementedError

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        raise NotImplementedError

    def weight_quantizer(self, layer: nn.Module) -> nn.Module:
        weight: Any = layer.weight
        return self.make_latent(weight)

    def input_quantizer(self, layer: nn.Module) -> nn.Module:
        from bitfront.trainables.layers.binary import Annealed, InputQuantizer
        from bitfront.trainables.layers.quantizers import PAIRS

        if self._inputs is None:
            pair = "bi-real" if self.values["sign_grad"] == "poly" else "bnn"
            self._inputs = Annealed(PAIRS[pair], 1.0)
        return InputQuantizer(self._inputs, layer)

    def phases(self, epochs: int) -> Sequence[Phase]:
        real = share_of(float(self.values["real_share"]), epochs)
        first = [Phase("real", real, real=True)] if real else []
        return [*first, *self.binary_phases(epochs - real, best=real > 0)]

    def binary_phases(self, epochs: int, best: bool) -> Sequence[Phase]:
        return [Phase("binary", epochs, best=best)]

    def enter(self, phase: Phase) -> None:
        self.shared.real = phase.real
        if phase.real:
            return
        for layer in self.layers:
            if phase.task:
                self.next_task(layer)
            else:
                layer.quantizer.start(layer.latent.detach())  # type: ignore[operator]

    def next_task(self, layer: BinaryLayer) -> None:
        """What a layer makes of having learned one task when the next one begins."""

    def own_optimizer(self) -> torch.optim.Optimizer | None:
        self.own = None
        if self.layers and not self.shared.real:
            self.own = self.make_optimizer([layer.latent for layer in self.layers])
        return self.own

    def after_step(self) -> None:
        if self.shared.real:
            from bitfront.trainables.layers.binary import clamp_latents

            clamp_latents(self.layers)

    def set_group(self, key: str, value: float) -> None:
        """One setting of the latents' optimizer."""
        if self.own is not None:
            for group in self.own.param_groups:
                group[key] = value


def share_of(share: float, epochs: int) -> int:
    """That share of the epochs, at least one if it is any at all, and at least one left over."""
    if not share or epochs < 2:
        return 0
    return min(epochs - 1, max(1, round(share * epochs)))


@METHODS.register("bayesbinn")
class BayesBiNNMethod(OwnOptimizer):
    name = "bayesbinn"
    paper = (
        "Meng et al., Training Binary Neural Networks using the Bayesian Learning Rule, ICML 2020"
    )
    doc = (
        "Bernoulli weights of natural parameter lam, trained by natural gradients through relaxed "
        "samples tanh((lam + noise) / tau); evaluated at the mode, sign(lam)"
    )
    soft_weights = True
    params: ClassVar = {
        "lr": rate(1e-4),
        "tau": Param(
            1e-10,
            Float(1e-12, 100.0),
            "temperature of the relaxed samples",
            search=Float(1e-12, 1e-3, log=True),
        ),
        "momentum": Param(0.0, Float(0.0, 0.999), "of the update of lam"),
        "samples": Param(1, Int(1, 100), "Monte-Carlo samples a step"),
        "lam_init": Param(
            10.0, Float(0.0, 100.0), "|lam| at first", search=Choice((1.0, 5.0, 10.0, 15.0))
        ),
        "kl": Param(1.0, Float(0.0, 100.0), "weight of the pull to the prior"),
        "prior": Param(
            "previous",
            Choice(("previous", "none")),
            "of a further task of a row of tasks: the posterior of the one before, or lam = 0",
        ),
        "mean_samples": Param(
            0,
            Int(0, 10_000),
            "draws of the weights whose mean prediction is measured beside the mode's at the end",
        ),
        "average": Param(
            "probabilities", Choice(("probabilities", "logits")), "what the mean is taken of"
        ),
        **_begins_real(0.0),
    }

    @property
    def draws(self) -> int:
        return 1 if self.shared.real else int(self.values["samples"])

    def make_latent(self, weight: Tensor) -> Latent:
        from bitfront.trainables.layers.latents import SampledWeight

        self.shared.value = float(self.values["tau"])
        return SampledWeight(self.shared, weight, float(self.values["lam_init"]))

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        from bitfront.trainables.optimizers import BayesBiNN

        v = self.values
        priors: list[Any] = [layer.quantizer.prior for layer in self.layers]
        return BayesBiNN(
            latents, float(v["lr"]), self.examples, float(v["momentum"]), float(v["kl"]), priors
        )

    def next_task(self, layer: BinaryLayer) -> None:
        if self.values["prior"] == "previous":
            prior: Any = layer.quantizer.prior
            prior.copy_(layer.latent.detach())

    def predictions(
        self, model: nn.Module, combine: Callable[[Tensor, str], Tensor], seed: int
    ) -> Averaged | None:
        samples = int(self.values["mean_samples"])
        if not samples or not self.layers:
            return None
        from bitfront.trainables.layers.latents import Averaged

        return Averaged(model, self.shared, samples, combine, str(self.values["average"]), seed)


@METHODS.register("ste-adam")
class STEAdamMethod(OwnOptimizer):
    name = "ste-adam"
    paper = "Courbariaux et al., BinaryConnect, NeurIPS 2015, with Adam as in BayesBiNN"
    doc = "F = sign, B = 1, Adam on latents clipped to [-1, 1] after each step"
    params: ClassVar = {"lr": rate(1e-2), **_begins_real(0.0)}

    def make_latent(self, weight: Tensor) -> Latent:
        from bitfront.trainables.layers.latents import SignedWeight

        return SignedWeight(self.shared)

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        from bitfront.trainables.optimizers import ClippedAdam

        return ClippedAdam(latents, float(self.values["lr"]))


@METHODS.register("bop")
class BopMethod(OwnOptimizer):
    name = "bop"
    paper = "Helwegen et al., Latent Weights Do Not Exist, NeurIPS 2019"
    doc = "weights are +-1 and flip where a moving average of their gradient says so clearly"
    params: ClassVar = {
        **scheduled(
            "gamma",
            Param(
                1e-4,
                Float(0.0, 1.0),
                "rate of the moving average at first",
                search=Float(1e-6, 1e-2, log=True),
            ),
            Param(1e-7, Float(0.0, 1.0), "at last; 0 needs a linear or cosine path"),
            shape="exponential",
        ),
        "theta": Param(
            1e-8,
            Float(0.0, 1.0),
            "how strong the average must be for a flip",
            search=Float(1e-9, 1e-5, log=True),
        ),
        "form": Param(
            "flip", Choice(("flip", "hysteresis")), "how the rule is written; the result is one"
        ),
        **_begins_real(0.0),
    }

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        self._gamma = declared_schedule(self.values, "gamma")

    def make_latent(self, weight: Tensor) -> Latent:
        from bitfront.trainables.layers.latents import FlippedWeight

        return FlippedWeight(self.shared)

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        from bitfront.trainables.optimizers import Bop

        v = self.values
        return Bop(latents, self._gamma.at(0.0), float(v["theta"]), str(v["form"]))

    def before_step(self, fraction: float) -> None:
        self.set_group("gamma", self._gamma.at(fraction))


class Sharpened(OwnOptimizer):
    """Methods whose soft weights are sharpened to signs by a growing beta."""

    soft_weights = True

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        self._beta = declared_schedule(self.values, "beta")

    def before_step(self, fraction: float) -> None:
        self.shared.value = self._beta.at(fraction)


@METHODS.register("pmf")
class PMFMethod(Sharpened):
    name = "pmf"
    paper = "Ajanthan et al., Proximal Mean-field for Neural Network Quantization, ICCV 2019"
    doc = (
        "p = softmax(beta u) over the levels -1 and +1, the mean weight in training, beta annealed"
    )
    params: ClassVar = {
        "lr": rate(1e-3),
        **scheduled(
            "beta",
            Param(1.0, Float(1e-3, 1e4), "sharpness at first"),
            Param(1e4, Float(1.0, 1e6), "at last", search=Float(10.0, 1e4, log=True)),
            shape="exponential",
        ),
        "jacobian": Param(
            "exact",
            Choice(("exact", "released")),
            "of the softmax: diag(p) - p p', or I - p p' as in the authors' code, which hears "
            "gradients at the corners too",
        ),
        "weight_decay": Param(0.0, Float(0.0, 1.0), "on u", search=Choice((0.0, 1e-4))),
        **_begins_real(0.0),
    }

    def make_latent(self, weight: Tensor) -> Latent:
        from bitfront.trainables.layers.latents import MeanFieldWeight

        return MeanFieldWeight(self.shared, weight, str(self.values["jacobian"]))

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        from torch.optim import Adam

        others: list[Any] = [layer.quantizer.shift for layer in self.layers]
        shifts = [shift for shift in others if shift is not None]
        lr, decay = float(self.values["lr"]), float(self.values["weight_decay"])
        return Adam([*latents, *shifts], lr, weight_decay=decay, fused=True)


@METHODS.register("bmd")
class BMDMethod(Sharpened):
    name = "bmd"
    paper = "Ajanthan et al., Mirror Descent View for Neural Network Quantization, AISTATS 2021"
    doc = "w = tanh(beta a), the gradient at w given to a unchanged, beta annealed (MD-tanh)"
    params: ClassVar = {
        "lr": rate(1e-2),
        **scheduled(
            "beta",
            Param(1.0, Float(1e-3, 1e35), "sharpness at first"),
            Param(2e4, Float(1.0, 1e35), "at last", search=Float(1e3, 1e6, log=True)),
            shape="exponential",
        ),
        "form": Param(
            "adam",
            Choice(("adam", "exact")),
            "adam on a, or the multiplicative step of mirror descent on w itself",
        ),
        **_begins_real(0.0),
    }

    @property
    def exact(self) -> bool:
        return self.values["form"] == "exact"

    def make_latent(self, weight: Tensor) -> Latent:
        from bitfront.trainables.layers.latents import CubeWeight, MirroredWeight

        return CubeWeight(self.shared) if self.exact else MirroredWeight(self.shared)

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        from torch.optim import Adam

        from bitfront.trainables.optimizers import MirrorDescent

        lr = float(self.values["lr"])
        return MirrorDescent(latents, lr) if self.exact else Adam(latents, lr, fused=True)

    def before_step(self, fraction: float) -> None:
        super().before_step(fraction)
        if self.exact:
            self.set_group("beta", self.shared.value)


@METHODS.register("lr-net")
class LRNetMethod(OwnOptimizer):
    name = "lr-net"
    paper = (
        "Shayer et al., Learning Discrete Weights Using the Local Reparameterization Trick, "
        "ICLR 2018"
    )
    doc = (
        "weights +1 with probability sigmoid(theta); training draws a layer's outputs from the "
        "normal distribution they give, evaluation takes sign(theta)"
    )
    soft_weights = True
    params: ClassVar = {
        "lr": rate(1e-2),
        "certainty": Param(
            1e-6,
            Float(0.0, 1.0),
            "weight in the loss of log p (1 - p), which is least where weights are certain",
            search=Float(1e-8, 1e-4, log=True),
        ),
        **_begins_real(0.0),
    }

    def make_latent(self, weight: Tensor) -> Latent:
        from bitfront.trainables.layers.latents import StochasticWeight

        return StochasticWeight(self.shared)

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        from torch.optim import Adam

        return Adam(latents, float(self.values["lr"]), fused=True)

    def bind(self, layers: Sequence[BinaryLayer]) -> None:
        from bitfront.trainables.layers.latents import reparametrize_locally

        super().bind(layers)
        for layer in self.layers:
            reparametrize_locally(layer.module, layer.quantizer)  # type: ignore[arg-type]

    def penalty(self) -> Tensor | None:
        weight = float(self.values["certainty"])
        if not weight or self.shared.real or not self.layers:
            return None
        from torch.nn.functional import logsigmoid

        terms = [(logsigmoid(x) + logsigmoid(-x)).sum() for x in (y.latent for y in self.layers)]
        return weight * sum(terms[1:], terms[0])


@METHODS.register("bnew")
class BNEWMethod(OwnOptimizer):
    name = "bnew"
    paper = "Binary Neural Networks without Auxiliary Weights (BNEW), BMVC 2022"
    doc = (
        "real weights in [-1, 1] that a growing regulariser drives to the corners, without latents "
        "beside them; then signs, frozen while everything else is trained on"
    )
    params: ClassVar = {
        "lr": Param(
            1e-2,
            Float(1e-9, 100.0),
            "learning rate of the binary weights, on the task's schedule",
            search=Choice((3e-3, 1e-2, 3e-2)),
        ),
        "r": Param(
            1e-4,
            Float(0.0, 1.0),
            "weight of the regulariser at last, 0 at first; with few steps it wants to be larger",
            search=Float(1e-5, 1e-2, log=True),
        ),
        "regulariser": Param(
            "concave",
            Choice(("concave", "l1", "l2")),
            "-|w|^2, or the distance |w - sign w| or its square",
        ),
        "freeze_share": Param(
            0.1,
            Float(0.0, 0.95),
            "share of the epochs of quantisation, at their end, with frozen signs",
            search=Choice((0.02, 0.1)),
        ),
        **_begins_real(0.5),
    }

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        self._r = Schedule(0.0, float(self.values["r"]))
        self._frozen = False

    @property
    def soft(self) -> bool:
        return not self._frozen

    def make_latent(self, weight: Tensor) -> Latent:
        from bitfront.trainables.layers.latents import CubeWeight

        return CubeWeight(self.shared)

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        from bitfront.trainables.optimizers import BNEW

        regulariser: Any = self.values["regulariser"]
        return BNEW(latents, float(self.values["lr"]), regulariser=regulariser)

    def binary_phases(self, epochs: int, best: bool) -> Sequence[Phase]:
        frozen = share_of(float(self.values["freeze_share"]), epochs)
        free = Phase("quantise", epochs - frozen, best=best)
        return [free, Phase("freeze", frozen, continues=True)] if frozen else [free]

    def enter(self, phase: Phase) -> None:
        """A frozen weight has no gradient, so that its moments are not applied any more."""
        self._frozen = phase.continues
        for layer in self.layers:
            layer.latent.requires_grad_(not self._frozen)
            if self._frozen:
                layer.latent.grad = None
                layer.latent.data.copy_(layer.hard_parts()[0])
        if not self._frozen:
            super().enter(phase)

    def before_step(self, fraction: float) -> None:
        self.set_group("r", self._r.at(fraction))
