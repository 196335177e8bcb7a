"""The baselines of robust pruning (docs/methods.md 5.8): adversarial training of the whole network,
and methods that prune it while it is trained. Each makes full-precision networks (level F or S) and
binary ones (level W), the latter by BinaryConnect."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables import layers
from bitfront.trainables.layers.pruning import counts, gas_counts
from bitfront.trainables.methods.base import METHODS
from bitfront.trainables.methods.pcpp import BinaryConnect
from bitfront.trainables.methods.pruning import EXPONENT, RATE, Pruned
from bitfront.trainables.methods.quantizer_pair import FIXED_SCALE, clamp
from bitfront.trainables.parameters import Choice, Float, Int, Param
from bitfront.trainables.training.schedules.phases import Phase
from bitfront.trainables.training.schedules.values import Schedule

if TYPE_CHECKING:
    from torch import nn

    from bitfront.trainables.layers.binary import BinaryLayer
    from bitfront.trainables.layers.quantizers import Pair


class WholeNetwork(BinaryConnect):
    """Methods that prune nothing: W layers are trained by BinaryConnect, F layers as usual."""

    family = "adversarial"
    levels = "FW"
    trains_full = True
    params: ClassVar = {"scale": FIXED_SCALE, "clamp": clamp(True)}

    def pair(self) -> Pair:
        return layers.PAIRS["bc"]


@METHODS.register
class AdversarialTraining(WholeNetwork):
    name = "at"
    paper = "at"
    doc = "trained on attacked images (PGD, or as task.attack.train says); F, or W by BinaryConnect"
    adversary = "pgd"


@METHODS.register
class TradesTraining(WholeNetwork):
    name = "trades"
    paper = "trades"
    doc = "clean loss + beta KL to the attacked image's output; F, or W by BinaryConnect"
    adversary = "trades"
    adversary_fixed = True


class PrunedWhileTrained(Pruned):
    """Methods that train weights under a mask: in full precision (S) or as signs (W) of latents
    that are clipped to [-1, 1]."""

    levels = "FSW"
    parametrization: ClassVar[str] = "SparseWeight"

    def weight_quantizer(self, layer: nn.Module) -> nn.Module:
        return self._masked(layer, binary=True)

    def sparse_weight(self, layer: nn.Module) -> nn.Module:
        return self._masked(layer, binary=False)

    def _masked(self, layer: nn.Module, binary: bool) -> nn.Module:
        weight: Any = layer.weight
        masked: nn.Module = getattr(layers.sparse, self.parametrization)(weight, binary)
        return masked

    @property
    def binary(self) -> list[BinaryLayer]:
        return [layer for layer in self.layers if layer.level != "S"]

    def after_step(self) -> None:
        layers.clamp_latents(self.binary)


LAYERS = Param(
    "igq",
    Choice(("igq", "power")),
    "weights a layer keeps: ideal-gas quotas (1 / (1 + F n) of its n), or c n^p",
)
DEATH = Param(0.5, Float(0.01, 0.99), "share of a layer's weights replaced at first, falls to 0")


@METHODS.register
class FlyingBird(PrunedWhileTrained):
    name = "flyingbird"
    paper = "flyingbird"
    doc = "sparse from the start; now and then the smallest weights go and random others come"
    params: ClassVar = {
        "rate": RATE,
        "layers": LAYERS,
        "p": EXPONENT,
        "death": DEATH,
        "updates": Param(40, Int(1, 10_000), "times that weights are replaced", search=Int(10, 80)),
    }

    def __init__(self, given: dict[str, Any] | None = None) -> None:
        super().__init__(given)
        self._death = Schedule(float(self.values["death"]), 0.0, "cosine")

    def layer_counts(self, sizes: Sequence[int]) -> list[int]:
        if self.values["layers"] == "igq":
            return gas_counts(sizes, self.rate)
        return counts(sizes, self.rate, self.p)

    def enter(self, phase: Phase) -> None:
        for layer in self.layers:
            layer.quantizer.draw_mask()  # type: ignore[operator]

    def before_step(self, fraction: float) -> None:
        """Replace weights whenever another 1 / updates of training has passed."""
        due = int(fraction * int(self.values["updates"]))
        for layer in self.layers:
            quantizer: Any = layer.quantizer
            if due > int(quantizer.rounds):
                quantizer.rounds.fill_(due)
                active = int(quantizer.mask.sum())
                free = quantizer.mask.numel() - active
                going = min(free, int(self._death.at(fraction) * active))
                coming = going + self._change(active, quantizer.kept, going, fraction)
                drop = going - min(0, coming)
                quantizer.drop_and_grow(layer.latent.detach(), drop, max(0, coming))

    def _change(self, active: int, promised: int, going: int, fraction: float) -> int:
        """The number of weights to grow beyond the `going` that are dropped; negative: fewer."""
        return promised - active


@METHODS.register
class FlyingBirdPlus(FlyingBird):
    name = "flyingbird+"
    doc = (
        "flyingbird whose sparsity follows the robust gap and the validation loss between `free` "
        "and `settle`; ends with the weights it promised"
    )
    params: ClassVar = {
        **FlyingBird.params,
        "free": Param(0.5, Float(0.0, 1.0), "fraction of training from which sparsity may change"),
        "settle": Param(
            0.9, Float(0.0, 1.0), "fraction of training from which it is what was promised"
        ),
    }
    LOOK_BACK = 4
    PRUNE, GROW = 0.4, 0.05

    def __init__(self, given: dict[str, Any] | None = None) -> None:
        super().__init__(given)
        self._wanted: set[str] = set()

    def after_epoch(self, history: Sequence[dict[str, float]]) -> None:
        """Decide from the last LOOK_BACK epochs: prune if the gap between training and validation
        grew in at least half of them, grow if the validation loss rose in at least half of them."""
        self._wanted = set()
        last = history[-self.LOOK_BACK - 1 :]
        if len(last) <= self.LOOK_BACK or any("val_loss" not in row for row in last):
            return
        for what, series in (
            ("prune", [_gap(row) for row in last]),
            ("grow", [row["val_loss"] for row in last]),
        ):
            rises = sum(b > a for a, b in itertools.pairwise(series))
            if rises >= self.LOOK_BACK / 2:
                self._wanted.add(what)

    def _change(self, active: int, promised: int, going: int, fraction: float) -> int:
        if not float(self.values["free"]) <= fraction < float(self.values["settle"]):
            return promised - active
        change = 0
        if "prune" in self._wanted:
            change -= int(self.PRUNE * going)
        if "grow" in self._wanted:
            change += int(self.GROW * active)
        return change


def _gap(row: dict[str, float]) -> float:
    """Training minus validation robust accuracy where both were measured; else validation minus
    training loss."""
    train = [v for k, v in row.items() if k.startswith("train_robust_")]
    validation = [v for k, v in row.items() if k.startswith("val_robust_")]
    if train and validation:
        return train[0] - validation[0]
    return row["val_loss"] - row["train_loss"]


@METHODS.register
class ConnectivitySampling(PrunedWhileTrained):
    name = "bcs"
    paper = "bcs"
    doc = "weight = fixed sign * max(theta, 0); a connection that falls to 0 gives way to another"
    parametrization = "SignedConnections"
    params: ClassVar = {
        "rate": RATE,
        "layers": LAYERS,
        "p": EXPONENT,
        "noise": Param(
            1e-6, Float(0.0, 1.0), "variance of the noise on active connections, a learning rate"
        ),
    }
    layer_counts = FlyingBird.layer_counts

    def enter(self, phase: Phase) -> None:
        """Draw the masks, and set theta, the parameter of a layer, to the magnitudes of its
        weights."""
        import torch

        for layer in self.layers:
            quantizer: Any = layer.quantizer
            quantizer.draw_mask()
            with torch.no_grad():
                layer.latent.copy_(layer.latent.abs().clamp_min(quantizer.FIRST))

    def after_step(self) -> None:
        """theta <- theta + lr N(0, noise) on active connections, then the mask is updated
        (docs/methods.md 5.8)."""
        import torch

        spread = math.sqrt(float(self.values["noise"])) * self.learning_rate
        for layer in self.layers:
            quantizer: Any = layer.quantizer
            theta = layer.latent.detach()
            if spread:
                theta.add_(torch.randn_like(theta) * quantizer.mask, alpha=spread)
            quantizer.rewire(theta)
        super().after_step()


def _shared_out(epochs: int, parts: Sequence[tuple[str, float, float]]) -> list[Phase]:
    """Phases of (name, weight, rate factor), each of at least one epoch; with fewer epochs than
    phases the first ones are left out."""
    parts = parts[-epochs:]
    total = sum(weight for _, weight, _ in parts)
    lengths = [max(1, round(epochs * weight / total)) for _, weight, _ in parts]
    while sum(lengths) != epochs:
        longest = max(range(len(lengths)), key=lengths.__getitem__)
        lengths[longest] += 1 if sum(lengths) < epochs else -1
    return [
        Phase(name, length, rate=rate)
        for (name, _, rate), length in zip(parts, lengths, strict=True)
    ]


@METHODS.register
class Hydra(PrunedWhileTrained):
    name = "hydra"
    paper = "hydra"
    doc = "pre-train (5/11 of the epochs), prune by trained scores (1/11), fine-tune (5/11)"
    parametrization = "ScoredWeight"
    params: ClassVar = {
        "rate": RATE,
        "p": EXPONENT,
        "finetune": Param(0.1, Float(1e-4, 1.0), "learning rate of fine-tuning, a share of lr"),
    }

    def phases(self, epochs: int) -> Sequence[Phase]:
        fine = float(self.values["finetune"])
        return _shared_out(epochs, [("dense", 50, 1.0), ("prune", 10, 1.0), ("tune", 50, fine)])

    def enter(self, phase: Phase) -> None:
        scoring = phase.name == "prune"
        for layer in self.layers:
            quantizer: Any = layer.quantizer
            if scoring:
                quantizer.start_scores(layer.latent.detach())
            elif phase.name == "tune":
                if not bool(quantizer.scores.any()):  # too few epochs for the phases before
                    quantizer.start_scores(layer.latent.detach())
                quantizer.keep_greatest(quantizer.scores.detach())
            quantizer.scoring = scoring
            quantizer.scores.requires_grad_(scoring)
            layer.latent.requires_grad_(not scoring)

    def after_step(self) -> None:
        for layer in self.layers:
            layer.quantizer.popped.forget()  # type: ignore[operator, union-attr]
        super().after_step()


@METHODS.register
class ATMC(PrunedWhileTrained):
    name = "atmc"
    paper = "atmc"
    doc = (
        "dense, then projected to the greatest weights after every step, then (W) to one trained "
        "value per layer"
    )
    parametrization = "SharedValue"
    params: ClassVar = {
        "rate": RATE,
        "p": EXPONENT,
        "low_rank": Param(
            False,
            Choice((True, False)),
            "S layers: W = U V + C, of which U, V and C together have the weights that are kept; W "
            "layers never, a product of factors is not binary",
            later=True,
        ),
    }

    def sparse_weight(self, layer: nn.Module) -> nn.Module:
        if not self.values["low_rank"] or getattr(layer, "groups", 1) != 1:
            return super().sparse_weight(layer)
        weight: Any = layer.weight
        return layers.sparse.FactoredWeight(weight, binary=False)

    @property
    def scale(self) -> str:
        return "layer"

    @property
    def factored(self) -> list[BinaryLayer]:
        """The layers with a low-rank term."""
        kind = layers.sparse.FactoredWeight
        return [layer for layer in self.layers if isinstance(layer.quantizer, kind)]

    def phases(self, epochs: int) -> Sequence[Phase]:
        """Dense, sparse, factored and shared, equally long, as in robust pruning. Without factors
        the sparse phase is twice as long, without binary layers the factored one."""
        parts = [("dense", 1, 1.0), ("sparse", 1, 1.0), ("factored", 1, 1.0), ("shared", 1, 1.0)]
        if not self.binary:
            parts[2:] = [("factored", 2, 1.0)]
        if not self.factored:
            parts[1:3] = [("sparse", 2, 1.0)]
        return _shared_out(epochs, parts)

    def enter(self, phase: Phase) -> None:
        shared = phase.name == "shared"
        self._projected = [] if phase.name == "dense" else list(self.layers)
        self._project()
        if shared:  # binary layers are under their masks from here on
            self._projected = [layer for layer in self.layers if layer.level == "S"]
        for layer in self.factored:
            weight: Any = layer.quantizer
            weight.factored = phase.name in ("factored", "shared")
        for layer in self.binary:
            quantizer: Any = layer.quantizer
            if shared:
                quantizer.share(layer.latent.detach())
            quantizer.shared = shared
            quantizer.value.requires_grad_(shared)

    def after_step(self) -> None:
        self._project()

    def _project(self) -> None:
        for layer in self._projected:
            quantizer: Any = layer.quantizer
            latent = layer.latent.detach()
            quantizer.keep_greatest(latent)
            latent.mul_(quantizer.mask)
