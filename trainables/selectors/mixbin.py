"""MixBin's selectors and the iterative selection it is compared with (docs/methods.md 4.1, 4.2,
4.8). MixBin starts from a network that is trained once and converts its layers one by one. The
formulas of the paper are not available: these are reconstructions, with switches. Two settings of
them have names: `mixbin-loss-paper` and `mixbin-grad-paper` follow what the paper tells of its
procedure, `mixbin-loss` and `mixbin-grad` have the switches of least regret in
benchmarks/selectors.py."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from bitfront.trainables.cost import CostTable
from bitfront.trainables.parameters import Choice, Float, Int, Param
from bitfront.trainables.selectors.base import SELECTORS, Ranking, Selector, plan_for_budget

if TYPE_CHECKING:
    from bitfront.trainables.selectors.scores.scoring import Scoring

DIRECTION = Param(
    "fp2bin",
    Choice(("bin2fp", "fp2bin")),
    "bin2fp: train a binary network and turn layers to full precision; fp2bin: the other way",
)
UPDATE = Param(
    "one-shot", Choice(("greedy", "one-shot")), "score again after every conversion, or rank once"
)
PER_FLOP = Param(True, Choice((True, False)), "divide a conversion's score by the flops it moves")
# What the paper tells of its procedure (docs/methods.md 4.2): a binary network is trained, and
# layers are turned to full precision one by one by their effect on the loss, whatever they cost.
PAPER = {
    "direction": replace(DIRECTION, default="bin2fp"),
    "update": replace(UPDATE, default="greedy"),
    "per_flop": replace(PER_FLOP, default=False),
}
MIXBIN = ("mixbin-grad", "mixbin-loss", "mixbin-grad-paper", "mixbin-loss-paper")
EXAMPLES = Param(5000, Int(16, 1_000_000), "training examples the layers are scored on")


@SELECTORS.register
class MixBinLoss(Selector):
    name = "mixbin-loss"
    paper = "mixbin"
    doc = "convert the layer that leaves the lowest loss, batch norm estimated anew"
    trained = True
    params: ClassVar = {
        "direction": DIRECTION,
        "update": UPDATE,
        "per_flop": PER_FLOP,
        "examples": EXAMPLES,
    }

    def rank(self, scoring: Scoring) -> Ranking:
        return scoring.convert(self.values, scoring.loss_after)


@SELECTORS.register
class MixBinGrad(Selector):
    name = "mixbin-grad"
    paper = "mixbin"
    doc = "mixbin-loss to first order: one backward pass instead of one loss per layer"
    trained = True
    params: ClassVar = {
        "direction": DIRECTION,
        "update": UPDATE,
        "score": Param(
            "gradient",
            Choice(("step", "gradient")),
            "|<dL/dw, w after - w before>|, or the mean |dL/dw|",
        ),
        "per_weight": Param(False, Choice((True, False)), "divide a step's score by the weights"),
        "per_flop": PER_FLOP,
        "examples": EXAMPLES,
    }

    def rank(self, scoring: Scoring) -> Ranking:
        return scoring.convert(self.values, scoring.gradient_scores)


@SELECTORS.register
class MixBinLossPaper(MixBinLoss):
    name = "mixbin-loss-paper"
    doc = "mixbin-loss by the paper's procedure: bin2fp, greedy, whatever a layer costs"
    params: ClassVar = {**MixBinLoss.params, **PAPER}


@SELECTORS.register
class MixBinGradPaper(MixBinGrad):
    name = "mixbin-grad-paper"
    doc = "mixbin-grad by the paper's procedure: bin2fp, greedy, the loss to first order"
    params: ClassVar = {
        **MixBinGrad.params,
        **PAPER,
        "score": replace(MixBinGrad.params["score"], default="step"),
    }


@SELECTORS.register
class Iterative(Selector):
    name = "iterative"
    paper = "mixbin"
    doc = "train every candidate of every step and keep the one of lowest loss"
    trained = True
    params: ClassVar = {
        "epochs": Param(0, Int(0, 100_000), "of each training; 0: those of the task"),
        "examples": EXAMPLES,
    }

    def rank(self, scoring: Scoring) -> Ranking:
        return scoring.train_every_candidate(
            int(self.values["epochs"]), int(self.values["examples"])
        )


@SELECTORS.register
class PseudoRandom(Selector):
    name = "pseudo-random"
    paper = "mixbin"
    doc = "a MixBin plan with a share of its binary layers exchanged"
    trained = True
    params: ClassVar = {
        "of": Param("mixbin-grad", Choice(MIXBIN), "whose plan it is"),
        "share": Param(0.3, Float(0.0, 1.0), "of the binary layers that are exchanged"),
        "examples": EXAMPLES,
    }

    def rank(self, scoring: Scoring) -> Ranking:
        return scoring.ranking_of(str(self.values["of"]), {"examples": self.values["examples"]})

    def plan(
        self,
        table: CostTable,
        order: Sequence[int],
        budget_pct: float,
        rule: str = "at_least",
        level: str = "B",
        seed: int = 0,
        pairs: Sequence[Sequence[float]] = (),
    ) -> str:
        """The plan of the MixBin order with ceil(share |Phi|) binary layers exchanged for as many
        full-precision ones (docs/methods.md 4.5). Their flops may differ, and the budget must still
        hold: the exchanged set, shuffled, begins a new order, which the budget rule cuts off."""
        rng = random.Random(seed)
        kept = plan_for_budget(table, order, budget_pct, rule, level)
        binary = [i for i in order if kept[i] != "F"]
        full = [i for i in order if kept[i] == "F"]
        count = min(math.ceil(float(self.values["share"]) * len(binary)), len(full))
        out, into = rng.sample(binary, count), rng.sample(full, count)
        first = [i for i in binary if i not in out] + into
        rest = [i for i in full if i not in into] + out
        rng.shuffle(first)
        rng.shuffle(rest)
        return plan_for_budget(table, [*first, *rest], budget_pct, rule, level)
