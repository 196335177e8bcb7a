"""BNEW (Paren and Poudel, BMVC 2022; docs/methods.md 3.2) and its base class, Adam with clipped
latents, which is the optimizer of STE-Adam (docs/methods.md 2.5)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Adam
from torch.optim.optimizer import ParamsT

from bitfront.trainables.layers.quantizers import sign
from bitfront.trainables.optimizers.base import ByGroup, clip_, with_gradients

Regulariser = Literal["concave", "l1", "l2"]


def corner_step_(
    u: list[Tensor], r: float, regulariser: Regulariser, exact: bool = False
) -> list[Tensor]:
    """The step of the regulariser R from u = w - eta grad f(w) (eq. (5)), in place, with
    r = eta lambda (Paren and Poudel, BMVC 2022; docs/methods.md 3.2):

    concave, R = -||w||^2:           w <- clip((1 + 2 r) u, -1, 1), eq. (12) to first order in r;
                                     exact: clip(u / (1 - 2 r), -1, 1), sign(u) from r = 1/2 on
    l1, R = ||w - sign w||_1:        w <- clip(u + r sign(u), -1, 1)
    l2, R = ||w - sign w||^2 / 2:    w <- clip((u + r sign(u)) / (1 + r), -1, 1), both eq. (8)"""
    if regulariser == "concave" and exact and r >= 0.5:
        for x in u:
            x.copy_(sign(x))
    elif regulariser == "concave":
        torch._foreach_mul_(u, 1 / (1 - 2 * r) if exact else 1 + 2 * r)
    else:
        torch._foreach_add_(u, [sign(x) for x in u], alpha=r)
        if regulariser == "l2":
            torch._foreach_div_(u, 1 + r)
    return clip_(u)


class ClippedAdam(Adam):
    """Adam on latents, w <- clip(w, -1, 1) after each step (STE-Adam, docs/methods.md 2.5)."""

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
    """An Adam step to u, then the step of the regulariser with weight r, `corner_step_`
    (docs/methods.md 3.2)."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
        r: float = 0.0,
        regulariser: Regulariser = "concave",
        weight_decay: float = 0.0,
        exact: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        for group in self.param_groups:
            group["r"] = r
            group["regulariser"] = regulariser
            group["exact"] = exact

    def _project(self, group: dict[str, Any], params: list[Tensor]) -> None:
        if params:
            _regularise(group, params)


class BNEWDescent(ByGroup):
    """The step of the paper's Theorem 1: u = w - eta grad f(w), eq. (5), then that of the
    regulariser, without Adam (docs/methods.md 3.2). The theorem has eta = 1 / (2 beta) for a
    beta-smooth f."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
        r: float = 0.0,
        regulariser: Regulariser = "concave",
        exact: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "r": r, "regulariser": regulariser, "exact": exact})

    def _step(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        torch._foreach_add_(params, grads, alpha=-group["lr"])
        _regularise(group, params)


def _regularise(group: dict[str, Any], params: list[Tensor]) -> None:
    r, regulariser = min(1.0, group["r"]), group["regulariser"]
    corner_step_(params, r, regulariser, group.get("exact", False))
