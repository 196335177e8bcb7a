"""Bop, the binary optimizer (Helwegen et al., NeurIPS 2019; docs/methods.md 2.6)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from bitfront.trainables.layers.quantizers import sign
from bitfront.trainables.optimizers.base import ByGroup


class Bop(ByGroup):
    """Flips weights that are exactly +1 or -1 (Helwegen et al., NeurIPS 2019; docs/methods.md 2.6),
    in one of two equivalent forms, which differ in the sign of m:

    flip:        m <- (1 - gamma) m + gamma g,  w <- -w where w m > theta
    hysteresis:  m <- (1 - gamma) m - gamma g,  w <- sign(m) where |m| > theta"""

    def __init__(
        self, params: ParamsT, gamma: float = 1e-4, theta: float = 1e-8, form: str = "flip"
    ) -> None:
        if form not in ("flip", "hysteresis"):
            raise ValueError(f"form '{form}' is neither flip nor hysteresis")
        super().__init__(params, {"gamma": gamma, "theta": theta, "form": form})

    def _step(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        gamma, theta = group["gamma"], group["theta"]
        m = self._buffers(params, "momentum")
        torch._foreach_mul_(m, 1 - gamma)
        if group["form"] == "flip":
            torch._foreach_add_(m, grads, alpha=gamma)
            # w flips exactly where theta - w m < 0.
            room = torch._foreach_mul(params, m)
            torch._foreach_neg_(room)
            torch._foreach_add_(room, theta)
            torch._foreach_mul_(params, [sign(x) for x in room])
            return
        torch._foreach_sub_(m, grads, alpha=gamma)
        for w, pull in zip(params, m, strict=True):
            w.copy_(torch.where(pull.abs() > theta, sign(pull), w))
