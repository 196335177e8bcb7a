"""The selectors that MixBin is compared with (docs/methods.md 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bitfront.trainables.parameters import Choice, Float, Int, Param
from bitfront.trainables.selectors import scores
from bitfront.trainables.selectors.base import SELECTORS, Ranking, Selector, ascending, flops_saved

if TYPE_CHECKING:
    from bitfront.trainables.selectors.scores.scoring import Scoring


@SELECTORS.register
class Hawq(Selector):
    name = "hawq"
    paper = "hawq-v2"
    doc = "HAWQ-V2: mean Hessian trace times the error of binary weights"
    trained = True
    params: ClassVar = {
        "probes": Param(50, Int(1, 10_000), "random vectors a trace is estimated from"),
        "examples": Param(512, Int(16, 1_000_000), "training examples of the Hessian"),
        "per_flop": Param(True, Choice((True, False)), "divide by the flops a layer saves"),
    }

    def rank(self, scoring: Scoring) -> Ranking:
        probes, examples = int(self.values["probes"]), int(self.values["examples"])
        return by_damage(
            scoring, scores.hawq_scores(scoring, probes, examples), bool(self.values["per_flop"])
        )


@SELECTORS.register
class AdaptiveMBQ(Selector):
    name = "adaptive-mbq"
    doc = "loss-aware: 0.5 sum h (Q(w) - w)^2, h the second moment of gradients"
    trained = True
    params: ClassVar = {
        "examples": Param(5000, Int(16, 1_000_000), "training examples of the second moment"),
        "per_flop": Param(True, Choice((True, False)), "divide by the flops a layer saves"),
    }

    def rank(self, scoring: Scoring) -> Ranking:
        damage = scores.second_moment_scores(scoring, int(self.values["examples"]))
        return by_damage(scoring, damage, bool(self.values["per_flop"]))


@SELECTORS.register
class BNAS(Selector):
    name = "bnas"
    paper = "bnas"
    doc = "shares of both versions of a layer, learnt under a penalty on flops"
    trained = True
    params: ClassVar = {
        "penalty": Param(
            0.1, Float(0.0, 1000.0), "loss a full-precision network pays for its flops"
        ),
        "lr": Param(0.01, Float(1e-5, 10.0), "Adam's learning rate of the shares"),
        "epochs": Param(0, Int(0, 100_000), "of the mixed training; 0: those of the task"),
    }

    def rank(self, scoring: Scoring) -> Ranking:
        logits = scores.full_precision_preference(
            scoring,
            float(self.values["penalty"]),
            float(self.values["lr"]),
            int(self.values["epochs"]),
        )
        return Ranking(ascending(logits), logits, "logit of full precision")


def by_damage(scoring: Scoring, damage: list[float], per_flop: bool) -> Ranking:
    """The ranking by ascending damage per layer, or per percent of the flops the layer saves: the
    greedy solution of the knapsack problem of least total damage within a budget."""
    what = "damage done by binary weights"
    if per_flop:
        saved = flops_saved(scoring.table, scoring.spec.level)
        damage = [each / max(s, 1e-12) for each, s in zip(damage, saved, strict=True)]
        what += " per percent of the flops"
    return Ranking(ascending(damage), damage, what)
