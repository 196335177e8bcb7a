"""BayesBiNN (Meng, Bachmann and Khan, ICML 2020; docs/methods.md 2.2): the relaxed sample and the
scale of its gradient as functions, the update as an optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from bitfront.trainables.optimizers.base import ByGroup

# The 1e-10 of the rule is part of the method: at tau = 1e-10 and saturated weights it determines
# the size of the step.
JITTER = 1e-10
# Uniform numbers are clamped to [EDGE, 1 - EDGE]: the logits of 0 and 1 are not finite.
EDGE = 1e-7


def logistic_noise(eps: Tensor) -> Tensor:
    """delta = log(eps / (1 - eps)) / 2 for eps ~ U(0, 1) (docs/methods.md 2.2)."""
    return eps.clamp(EDGE, 1 - EDGE).logit_().mul_(0.5)


def relaxed_weight(lam: Tensor, delta: Tensor, tau: float) -> Tensor:
    """w_b = tanh((lam + delta) / tau) (docs/methods.md 2.2)."""
    return torch.tanh((lam + delta) / tau)


def relaxed_scale(w: Tensor, lam: Tensor, tau: float) -> Tensor:
    """s / N = (1 - w_b^2 + 1e-10) / (tau (1 - mu^2 + 1e-10)), mu = tanh(lam) (docs/methods.md 2.2).
    1 - mu^2 is exactly 0 for |lam| >= 9.011 in float32 and for |lam| >= 19.06 in float64: the dtype
    is part of the method."""
    mu = torch.tanh(lam)
    return (1 - w * w + JITTER) / (tau * (1 - mu * mu + JITTER))


class BayesBiNN(ByGroup):
    """The Bayesian learning rule for Bernoulli weights (Meng, Bachmann and Khan, ICML 2020;
    docs/methods.md 2.2), with N = `examples`, c_KL = `kl`, beta = `momentum`, a = `lr`:

    ghat = (1 / S) sum over the S samples of s g
    m   <- beta m + (1 - beta) (ghat + c_KL (lam - lam_0))
    lam <- lam - a m / (1 - beta^t)

    The parameters are lam. Their gradient must be ghat / N, the mean over the samples of (s / N) g,
    as backpropagation through `latents.SampledWeight` gives it. `priors` are the tensors lam_0 of
    the parameters, read at every step; without them lam_0 = 0."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-4,
        examples: int = 1,
        momentum: float = 0.0,
        kl: float = 1.0,
        priors: list[Tensor] | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "examples": examples, "momentum": momentum, "kl": kl})
        tensors = [p for group in self.param_groups for p in group["params"]]
        self.priors = dict(zip(tensors, priors, strict=True)) if priors else {}

    def _step(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        lr, n, beta, kl = (group[key] for key in ("lr", "examples", "momentum", "kl"))
        priors = [self.priors[p] for p in params] if self.priors else None
        if not beta:
            torch._foreach_mul_(params, 1 - lr * kl)
            torch._foreach_add_(params, grads, alpha=-lr * n)
            if priors:
                torch._foreach_add_(params, priors, alpha=lr * kl)
            return
        update = torch._foreach_mul(grads, n)
        torch._foreach_add_(update, params, alpha=kl)
        if priors:
            torch._foreach_sub_(update, priors, alpha=kl)
        m = self._buffers(params, "momentum")
        torch._foreach_lerp_(m, update, 1 - beta)
        group["step"] = group.get("step", 0) + 1
        torch._foreach_add_(params, m, alpha=-lr / (1 - beta ** group["step"]))
