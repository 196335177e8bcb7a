"""Optimizers of binary weights (methods.md 2 and 3), as ordinary torch optimizers: usable without
the rest of this package. What a network multiplies with while they train is in `latents`.

The functions on top are the rules of the papers; the classes apply them to all tensors at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer
from torch.optim.optimizer import ParamsT

from bitfront.trainables.layers.quantizers import sign

# Part of BayesBiNN's rule: at tau = 1e-10 and saturated weights it decides the step.
JITTER = 1e-10
# Uniform numbers are kept away from 0 and 1, where their logit is not finite.
EDGE = 1e-7


def logistic_noise(eps: Tensor) -> Tensor:
    """delta = log(eps / (1 - eps)) / 2 for uniform eps (methods.md 2.2)."""
    return eps.clamp(EDGE, 1 - EDGE).logit_().mul_(0.5)


def relaxed_weight(lam: Tensor, delta: Tensor, tau: float) -> Tensor:
    """w_b = tanh((lam + delta) / tau)."""
    return torch.tanh((lam + delta) / tau)


def relaxed_scale(w: Tensor, lam: Tensor, tau: float) -> Tensor:
    """s / N = (1 - w_b^2 + 1e-10) / (tau (1 - mu^2 + 1e-10)), mu = tanh(lam). 1 - mu^2 is exactly 0
    from |lam| = 9.011 on in float32, from 19.06 in float64: the dtype is part of the method."""
    mu = torch.tanh(lam)
    return (1 - w * w + JITTER) / (tau * (1 - mu * mu + JITTER))


def mirror_step(w: Tensor, grad: Tensor, lr: float, beta: float) -> Tensor:
    """MD-tanh: w <- (E - 1) / (E + 1), E = (1 + w) / (1 - w) exp(-2 lr beta g), which is
    atanh w <- atanh w - lr beta g (methods.md 3.5). As a tanh, since E overflows."""
    edge = 1 - torch.finfo(w.dtype).eps
    return torch.tanh(torch.atanh(w.clamp(-edge, edge)) - lr * beta * grad)


Regulariser = Literal["concave", "l1", "l2"]


def corner_step_(u: list[Tensor], r: float, regulariser: Regulariser) -> list[Tensor]:
    """What BNEW makes of u = w - eta grad, in place, first order in r = eta lambda (methods.md
    3.2), then clipped to [-1, 1].
    concave: (1 + 2 r) u;  l1: u + r sign(u);  l2: (u + r sign(u)) / (1 + r)."""
    if regulariser == "concave":
        torch._foreach_mul_(u, 1 + 2 * r)
    else:
        torch._foreach_add_(u, [sign(x) for x in u], alpha=r)
        if regulariser == "l2":
            torch._foreach_div_(u, 1 + r)
    return clip_(u)


def clip_(tensors: list[Tensor]) -> list[Tensor]:
    """To [-1, 1], in place."""
    if tensors:
        torch._foreach_clamp_min_(tensors, -1.0)
        torch._foreach_clamp_max_(tensors, 1.0)
    return tensors


def _with_gradients(params: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """(parameters, gradients) of those that have one: frozen parameters have none."""
    pairs = [(p, p.grad) for p in params if p.grad is not None]
    return [p for p, _ in pairs], [g for _, g in pairs]


class _ByGroup(Optimizer):
    """An optimizer whose step is one function of a group's parameters and gradients."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params, grads = _with_gradients(group["params"])
            if params:
                self._step(group, params, grads)
        return loss

    def _step(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        raise NotImplementedError

    def _buffers(self, params: list[Tensor], name: str) -> list[Tensor]:
        """A tensor of state for each parameter, 0 at first."""
        for p in params:
            if name not in self.state[p]:
                self.state[p][name] = torch.zeros_like(p, memory_format=torch.preserve_format)
        return [self.state[p][name] for p in params]


class BayesBiNN(_ByGroup):
    """The Bayesian learning rule for Bernoulli weights (methods.md 2.2). Parameters are the natural
    parameters lam; a gradient is the mean over Monte-Carlo samples of (s / N) g, which
    `latents.SampledWeight` gives. `priors` are tensors lam0 to go with the parameters, read at
    every step; without them lam0 = 0."""

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


class Bop(_ByGroup):
    """Flips weights that are exactly +-1 (methods.md 2.6), in one of two equal forms:
    flip:        m <- (1 - gamma) m + gamma g, w <- -w where w m > theta;
    hysteresis:  m <- (1 - gamma) m - gamma g, w <- sign(m) where |m| > theta."""

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
            # theta - w m is below 0 exactly where w flips.
            room = torch._foreach_mul(params, m)
            torch._foreach_neg_(room)
            torch._foreach_add_(room, theta)
            torch._foreach_mul_(params, [sign(x) for x in room])
            return
        torch._foreach_sub_(m, grads, alpha=gamma)
        for w, pull in zip(params, m, strict=True):
            w.copy_(torch.where(pull.abs() > theta, sign(pull), w))


class MirrorDescent(_ByGroup):
    """Mirror descent under the tanh map on weights in (-1, 1), in its multiplicative form
    (methods.md 3.5)."""

    def __init__(self, params: ParamsT, lr: float = 1e-3, beta: float = 1.0) -> None:
        super().__init__(params, {"lr": lr, "beta": beta})

    def _step(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        for w, g in zip(params, grads, strict=True):
            w.copy_(mirror_step(w, g, group["lr"], group["beta"]))


class ClippedAdam(Adam):
    """Adam on latents that are clipped to [-1, 1] after each step: STE-Adam (methods.md 2.5)."""

    def __init__(self, params: ParamsT, lr: float = 1e-2, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr, weight_decay=weight_decay, fused=True)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        for group in self.param_groups:
            self._project(group, _with_gradients(group["params"])[0])
        return loss

    def _project(self, group: dict[str, Any], params: list[Tensor]) -> None:
        clip_(params)


class BNEW(ClippedAdam):
    """An Adam step, then one towards the corners of the cube with weight r (methods.md 3.2)."""

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
