"""Methods that prune frozen random weights: edge-popup trains scores that select which binary
weights are kept (docs/methods.md 5.1); robust scratch tickets are the same with other defaults.
Masks are in `layers.sparse`, the number of weights that each layer keeps in `layers.pruning`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables import layers
from bitfront.trainables.layers.pruning import check_counts, counts
from bitfront.trainables.methods.base import METHODS, Method
from bitfront.trainables.parameters import Choice, Float, Param

if TYPE_CHECKING:
    from torch import nn

    from bitfront.trainables.layers.binary import BinaryLayer

ROBUST = "robust-binary"

RATE = Param(
    0.99,
    Float(0.0, 0.999999),
    "share r of the weights that is pruned, over all planned layers",
    search=Choice((0.5, 0.8, 0.9, 0.95, 0.99)),
)
EXPONENT = Param(
    0.1,
    Float(0.0, 1.0),
    "exponent p: a layer of n weights keeps about c n^p; 1 the same share, 0 the same number",
    search=Choice((0.0, 0.1, 0.2, 0.5, 0.8, 0.9, 1.0)),
)


class Pruned(Method):
    """Methods that prune: how many weights each planned layer keeps is known before training."""

    family = "pruning"
    paper = ROBUST

    @property
    def rate(self) -> float:
        return float(self.values["rate"])

    @property
    def p(self) -> float:
        return float(self.values.get("p", 1.0))

    def layer_counts(self, sizes: Sequence[int]) -> list[int]:
        return counts(sizes, self.rate, self.p)

    def kept(self, sizes: Mapping[str, int]) -> dict[str, int] | None:
        found = self.layer_counts(list(sizes.values()))
        return check_counts(
            dict(zip(sizes, found, strict=True)), f"{self.name}: rate {self.rate:g}, p {self.p:g}"
        )

    def bind(self, made: Sequence[BinaryLayer]) -> None:
        super().bind(made)
        if made:
            kept = self.kept({layer.name: layer.latent.numel() for layer in made})
            assert kept is not None
            for layer in made:
                layer.quantizer.set_kept(kept[layer.name])  # type: ignore[operator]


SCORES = {
    "scores": Param(
        "uniform",
        Choice(("uniform", "kaiming")),
        "first scores: all layers in the same range, or scaled to the fan of each",
    ),
    "score_range": Param(
        0.01,
        Float(1e-6, 10.0),
        "a of uniform first scores in (-a, a)",
        search=Choice((0.001, 0.01, 0.1)),
    ),
}
ROUNDING = Param(
    "up",
    Choice(("up", "down")),
    "of what a layer keeps: up as in the released code, 18 of 1,728 at r = 0.99, or down as in the "
    "text, 17",
    later=True,
)
FAN = Param(
    "plain",
    Choice(("plain", "kept", "pruned")),
    "of the Kaiming constant: the fan, or the fan times the kept or the pruned share of the layer "
    "(plain where nothing is pruned)",
)


class RandomWeights(Pruned):
    """Frozen random signs; only scores are trained, and the weights with the greatest |score| are
    kept."""

    levels = "FW"
    from_weights = False

    def layer_counts(self, sizes: Sequence[int]) -> list[int]:
        return counts(sizes, self.rate, self.p, down=self.values["rounding"] == "down")

    @property
    def magnitude(self) -> str:
        """`binary`: |w| = 1; else |w| is the Kaiming constant, and this is its `fan` parameter."""
        return "binary" if self.values.get("init") == "binary" else str(self.values["fan"])

    @property
    def scale(self) -> str:
        return "none" if self.magnitude == "binary" else "layer"

    def weight_quantizer(self, layer: nn.Module) -> nn.Module:
        weight: Any = layer.weight
        frozen = layers.RandomSubnetwork(weight, self.magnitude)
        uniform = self.values["scores"] == "uniform"
        layers.draw_scores(weight, float(self.values["score_range"]) if uniform else None)
        return frozen

    def after_step(self) -> None:
        self._forget()

    def enter(self, phase: Any) -> None:
        self._forget()

    def _forget(self) -> None:
        for layer in self.layers:
            layer.quantizer.popped.forget()  # type: ignore[union-attr, operator]


@METHODS.register
class EdgePopup(RandomWeights):
    name = "edge-popup"
    doc = "frozen random signs, the k of each layer with the greatest trained |score| kept"
    params: ClassVar = {
        "rate": RATE,
        "p": EXPONENT,
        "init": Param(
            "binary",
            Choice(("binary", "kaiming")),
            "|w| of the frozen weights: 1, or the signed Kaiming constant sqrt(2 / fan)",
        ),
        "fan": FAN,
        **SCORES,
        "rounding": ROUNDING,
    }


@METHODS.register
class RobustScratchTickets(RandomWeights):
    name = "rst"
    paper = "rst"
    doc = "edge-popup on signed Kaiming constants, one rate for all layers, trained under attack"
    adversary = "pgd"
    params: ClassVar = {"rate": RATE, "fan": FAN, **SCORES, "rounding": ROUNDING}
