"""BNEW (BMVC 2022; docs/methods.md 3.2) and the Adam with clipped latents it is built on, which
alone is STE-Adam (docs/methods.md 2.5)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Adam
from torch.optim.optimizer import ParamsT

from bitfront.trainables.layers.quantizers import sign
from bitfront.trainables.optimizers.base import clip_, with_gradients

Regulariser = Literal["concave", "l1", "l2"]


def corner_step_(u: list[Tensor], r: float, regulariser: Regulariser) -> list[Tensor]:
    """The step of BNEW from u = w - eta grad, in place, first order in r = eta lambda, then clipped
    to [-1, 1] (docs/methods.md 3.2):

    concave, R = -||w||^2:          (1 + 2 r) u
    l1, R = ||w - sign w||_1:       u + r sign(u)
    l2, R = ||w - sign w||_2^2 / 2: (u + r sign(u)) / (1 + r)"""
    if regulariser == "concave":
        torch._foreach_mul_(u, 1 + 2 * r)
    else:
        torch._foreach_add_(u, [sign(x) for x in u], alpha=r)
        if regulariser == "l2":
            torch._foreach_div_(u, 1 + r)
    return clip_(u)


class ClippedAdam(Adam):
    """Adam on latents that are clipped to [-1, 1] after each step: STE-Adam (docs/methods.md
    2.5)."""

    def __init__(self, params: ParamsT, lr: float = 1e-2, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr, weight_decay=weight_decay, fused=True)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        for group in self.param_groups:
            self._project(group, with_gradients(group["params"])[0])
        return loss

    def _project(self, group: dict[str, Any], params: list[Tensor]) -> None:
        clip_(params)


class BNEW(ClippedAdam):
    """An Adam step, then a step of weight r towards the corners of the cube (docs/methods.md
    3.2)."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
        r: float = 0.0,
        regulariser: Regulariser = "concave",
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        for group in self.param_groups:
            group["r"] = r
            group["regulariser"] = regulariser

    def _project(self, group: dict[str, Any], params: list[Tensor]) -> None:
        if params:
            corner_step_(params, min(1.0, group["r"]), group["regulariser"])
