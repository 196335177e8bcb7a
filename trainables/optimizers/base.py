"""What the optimizers of binary weights share: one step per parameter group, in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def clip_(tensors: list[Tensor]) -> list[Tensor]:
    """Clip the tensors to [-1, 1], in place."""
    if tensors:
        torch._foreach_clamp_min_(tensors, -1.0)
        torch._foreach_clamp_max_(tensors, 1.0)
    return tensors


def with_gradients(params: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """(parameters, gradients) of those parameters that have a gradient; frozen ones have none."""
    pairs = [(p, p.grad) for p in params if p.grad is not None]
    return [p for p, _ in pairs], [g for _, g in pairs]


class ByGroup(Optimizer):
    """An optimizer that updates all parameters of a group in one call of `_step`."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params, grads = with_gradients(group["params"])
            if params:
                self._step(group, params, grads)
        return loss

    def _step(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        raise NotImplementedError

    def _buffers(self, params: list[Tensor], name: str) -> list[Tensor]:
        """The state tensors `name` of the parameters, which start at 0."""
        for p in params:
            if name not in self.state[p]:
                self.state[p][name] = torch.zeros_like(p, memory_format=torch.preserve_format)
        return [self.state[p][name] for p in params]
