"""Mirror descent under the tanh map (Ajanthan et al., AISTATS 2021; docs/methods.md 3.5)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from bitfront.trainables.optimizers.base import ByGroup


def mirror_step(w: Tensor, grad: Tensor, lr: float, beta: float) -> Tensor:
    """The weight after a step of MD-tanh (Ajanthan et al., AISTATS 2021; docs/methods.md 3.5):

    w <- (E - 1) / (E + 1),  E = (1 + w) / (1 - w) exp(-2 eta beta g)

    Computed in the equal form atanh w <- atanh w - eta beta g, since E overflows."""
    edge = 1 - torch.finfo(w.dtype).eps
    return torch.tanh(torch.atanh(w.clamp(-edge, edge)) - lr * beta * grad)


class MirrorDescent(ByGroup):
    """Mirror descent under the tanh map on weights in (-1, 1), by `mirror_step`: the exact,
    multiplicative form (docs/methods.md 3.5)."""

    def __init__(self, params: ParamsT, lr: float = 1e-3, beta: float = 1.0) -> None:
        super().__init__(params, {"lr": lr, "beta": beta})

    def _step(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        for w, g in zip(params, grads, strict=True):
            w.copy_(mirror_step(w, g, group["lr"], group["beta"]))
