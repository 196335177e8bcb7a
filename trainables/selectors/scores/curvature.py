"""How much binary weights raise the loss, from its curvature at a full-precision network: the
scores of HAWQ-V2 (Dong et al., NeurIPS 2020) and of loss-aware bit allocation (docs/methods.md
4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from bitfront.trainables.data import in_order
from bitfront.trainables.layers.quantizers import sign
from bitfront.trainables.layers.weights import mean_magnitude
from bitfront.trainables.progress import report
from bitfront.trainables.selectors.scores.scoring import MeanLoss, Scoring
from bitfront.trainables.structure.attention import open_attentions
from bitfront.trainables.structure.kinds import as_outputs, as_stored, groups_of

# Small batches: second derivatives keep the graph of the first ones in memory.
HESSIAN_BATCH = 128


def planned_weights(model: nn.Module, scoring: Scoring) -> list[Tensor]:
    """The weights of the layers that a plan decides, in its order."""
    names = [layer.name for layer in scoring.table.plan_layers]
    return [layer.weight for layer in _planned(model, names)]  # type: ignore[misc]


def planned_groups(model: nn.Module, scoring: Scoring) -> list[int]:
    """What `binary_error` needs to know of the layouts of these weights."""
    names = [layer.name for layer in scoring.table.plan_layers]
    return [groups_of(layer) for layer in _planned(model, names)]


def _planned(model: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    open_attentions(model, set(names))
    return [model.get_submodule(name) for name in names]


@torch.no_grad()
def binary_error(w: Tensor, groups: int = 0) -> Tensor:
    """Q(w) - w with Q(w) = mean |w| sign(w), the mean taken per output channel; `groups`: those of
    a transposed convolution."""
    w = as_outputs(w, groups)
    scale = mean_magnitude(w, "channel")
    assert scale is not None
    return as_stored(scale * sign(w) - w, groups)


def hutchinson_traces(
    model: nn.Module,
    weights: Sequence[Tensor],
    batches: Sequence[tuple[Any, Tensor]],
    probes: int,
    seed: int,
    loss_of: MeanLoss = cross_entropy,
) -> list[float]:
    """tr(H_l) of the mean loss for every weight l, by Hutchinson's estimator
    tr(H) = E[v' H v] over vectors v of random signs (docs/methods.md 4.5). One v covers all blocks
    l at once, since the terms between different blocks have mean 0."""
    generator = torch.Generator().manual_seed(seed)
    examples = sum(len(y) for _, y in batches)
    signs = [
        [torch.randint(2, w.shape, generator=generator).to(w).mul_(2).sub_(1) for w in weights]
        for _ in range(probes)
    ]
    traces = [0.0] * len(weights)
    for place, (x, y) in enumerate(batches, 1):
        report(f"curvature, batch {place} of {len(batches)}")
        with sdpa_kernel(SDPBackend.MATH):  # torch's fast attentions have no second derivatives
            loss = loss_of(model(x), y) * len(y) / examples
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        for probe, vs in enumerate(signs):
            products = torch.autograd.grad(gradients, weights, vs, retain_graph=probe + 1 < probes)
            for i, (v, product) in enumerate(zip(vs, products, strict=True)):
                traces[i] += float((v * product).sum()) / probes
    return traces


def hawq_scores(scoring: Scoring, probes: int, examples: int) -> list[float]:
    """Omega_l = (tr(H_l) / n_l) ||Q(w_l) - w_l||_2^2 per layer l of n_l weights (HAWQ-V2, Dong et
    al., NeurIPS 2020; docs/methods.md 4.5)."""
    model = scoring.full_precision()
    weights = planned_weights(model, scoring)
    images = scoring.examples(examples)
    batches = list(in_order(images, HESSIAN_BATCH))
    scoring.scored_examples += probes * len(images)
    traces = hutchinson_traces(model, weights, batches, probes, scoring.spec.seed, scoring.loss)
    groups = planned_groups(model, scoring)
    return [
        trace / w.numel() * float(binary_error(w.detach(), g).square().sum())
        for trace, w, g in zip(traces, weights, groups, strict=True)
    ]


def second_moments(
    model: nn.Module,
    weights: Sequence[Tensor],
    batches: Iterable[tuple[Any, Tensor]],
    loss_of: MeanLoss = cross_entropy,
) -> list[Tensor]:
    """h = mean over batches of (dL/dw)^2 per weight, the quantity that Adam's second moment
    estimates."""
    totals = [torch.zeros_like(w) for w in weights]
    count = 0
    for x, y in batches:
        gradients = torch.autograd.grad(loss_of(model(x), y), weights)
        for total, gradient in zip(totals, gradients, strict=True):
            total.add_(gradient.square())
        count += 1
    return [total / max(1, count) for total in totals]


def second_moment_scores(scoring: Scoring, examples: int) -> list[float]:
    """sum_i h_i (Q(w)_i - w_i)^2 / 2 per layer, h the second moments (docs/methods.md 4.5)."""
    model = scoring.full_precision()
    weights = planned_weights(model, scoring)
    images = scoring.examples(examples)
    scoring.scored_examples += len(images)
    batches = in_order(images, scoring.spec.task.batch_size)
    moments = second_moments(model, weights, batches, scoring.loss)
    groups = planned_groups(model, scoring)
    return [
        0.5 * float((h * binary_error(w.detach(), g).square()).sum())
        for h, w, g in zip(moments, weights, groups, strict=True)
    ]
