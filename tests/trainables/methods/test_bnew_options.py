"""What BNEW's supplement describes besides its default: Theorem 1's step, tanh(k x) in place of the
sign, ReActNet's scale of weights (docs/methods.md 3.2, 3.3). Expected numbers are worked out from
the paper's formulas."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn

from bitfront.trainables.optimizers import BNEWDescent

BETA, LAM = 4.0, 0.6


def objective(w: torch.Tensor, target: torch.Tensor, curvature: torch.Tensor) -> torch.Tensor:
    """F = f + lam R with f(w) = sum c (w - a)^2 / 2, which is max(c)-smooth, and R = -|w|^2."""
    return (curvature * (w - target) ** 2).sum() / 2 - LAM * (w * w).sum()


@pytest.fixture
def descent():
    """60 steps of the optimizer: (all iterates, target, curvature)."""
    generator = torch.Generator().manual_seed(3)
    target = torch.randn(8, generator=generator, dtype=torch.float64)
    curvature = torch.linspace(0.2, BETA, 8, dtype=torch.float64)
    w = nn.Parameter(torch.rand(8, generator=generator, dtype=torch.float64) - 0.5)
    eta = 1 / (2 * BETA)
    optimizer = BNEWDescent([w], lr=eta, r=eta * LAM, exact=True)
    seen = [w.detach().clone()]
    for _ in range(60):
        optimizer.zero_grad()
        (curvature * (w - target) ** 2).sum().div(2).backward()
        optimizer.step()
        seen.append(w.detach().clone())
    return seen, target, curvature


def test_a_step_solves_the_proximal_problem_of_equation_2(descent) -> None:
    """argmin over the cube of |w - w_t|^2 / (2 eta) + <grad f(w_t), w> + lam R(w), by looking at a
    grid: it falls apart into one problem for each weight."""
    seen, target, curvature = descent
    grid = torch.linspace(-1, 1, 20_001, dtype=torch.float64)[:, None]
    for before, after in (seen[0:2], seen[7:9], seen[30:32]):
        gradient = curvature * (before - target)
        of_grid = BETA * (grid - before) ** 2 + gradient * grid - LAM * grid**2
        assert after.tolist() == pytest.approx(grid[of_grid.argmin(0), 0].tolist(), abs=1.1e-4)


def test_the_steps_satisfy_theorem_1(descent) -> None:
    """|grad F(w_best)|^2 <= 18 beta (F(w_0) - F*) / T, equation (15); weights at a corner have no
    gradient along the cube, so that those inside of it count."""
    seen, target, curvature = descent
    lowest = min(float(objective(w, target, curvature)) for w in seen)
    for steps in (1, 5, 20, 60):
        pairs = itertools.pairwise(seen[: steps + 1])
        lengths = [float((after - before).norm()) for before, after in pairs]
        best = seen[1 + lengths.index(min(lengths))].clone().requires_grad_()
        objective(best, target, curvature).backward()
        inside = best.detach().abs() < 1
        bound = 18 * BETA * (float(objective(seen[0], target, curvature)) - lowest) / steps
        assert float((best.grad[inside] ** 2).sum()) <= bound + 1e-12


def test_the_method_takes_the_steps_of_the_theorem(make_spec, start) -> None:
    params = {"direction": "gradient", "r_path": "constant", "r": 0.02, "real_share": 0.0}
    training = start(make_spec("bnew", "W", params={**params, "step": "exact"}))
    training.epoch()
    optimizer = training.optimizers[-1][0]
    assert isinstance(optimizer, BNEWDescent)
    assert optimizer.param_groups[0]["r"] == pytest.approx(0.02)  # from the first step on
    assert optimizer.param_groups[0]["exact"]


@pytest.mark.parametrize("k", [1.0, 2.5, 6.0])
def test_tanh_in_place_of_the_sign_of_inputs(make_spec, start, k: float) -> None:
    """F(x) = tanh(k x) and its slope k / cosh(k x)^2 in training, the sign in evaluation."""
    params = {"sign_grad": "tanh", "sharpness": k}
    training = start(make_spec("bnew", "B", params=params))
    quantizer = training.method.input_quantizer(nn.Linear(3, 2))
    x = torch.tensor([-0.7, 0.0, 0.2], requires_grad=True)
    out = quantizer.train()(x)
    out.sum().backward()
    assert out.tolist() == pytest.approx([math.tanh(k * v) for v in (-0.7, 0.0, 0.2)], abs=1e-6)
    slopes = [k / math.cosh(k * v) ** 2 for v in (-0.7, 0.0, 0.2)]
    assert x.grad.tolist() == pytest.approx(slopes, rel=1e-5)
    assert quantizer.eval()(x).tolist() == [-1.0, 1.0, 1.0]
    assert training.method.soft
    with training.method.as_trained():
        assert quantizer(x).tolist() == pytest.approx(out.tolist())


def test_tanh_inputs_learn_and_end_binary(make_spec, start, finish) -> None:
    params = {"sign_grad": "tanh", "lr": 0.02}
    training = finish(start(make_spec("ste-adam", "B", params=params, subset=600, epochs=6)))
    training.network.verify()
    assert training.history[-1]["val_accuracy"] > 0.5


# --- alpha_c = mean |w| -------------------------------------------------------------------------


@pytest.fixture
def scaled(make_spec, start, finish):
    return finish(start(make_spec("ste-adam", "W", params={"scale": "channel"}, epochs=2)))


def test_weights_are_signs_times_the_mean_magnitude_of_their_channel(scaled) -> None:
    scaled.network.verify()
    for layer in scaled.network.binary:
        latent = layer.latent.detach()
        for channel, row in zip(layer.module.eval().weight, latent, strict=True):
            alpha = sum(abs(float(v)) for v in row) / len(row)
            expected = [alpha if v >= 0 else -alpha for v in row.tolist()]
            assert channel.tolist() == pytest.approx(expected, rel=1e-5)


def test_alpha_has_no_gradient_and_hands_that_of_the_weight_on() -> None:
    from bitfront.trainables.layers.latents import Shared
    from bitfront.trainables.layers.scaled import ScaledSign

    latent = torch.tensor([[0.5, -0.1], [0.3, 0.9]], requires_grad=True)
    weight = ScaledSign(Shared()).train()(latent)
    weight.backward(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert weight.flatten().tolist() == pytest.approx([0.3, -0.3, 0.6, 0.6])
    assert latent.grad.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_alpha_can_be_folded_into_the_batch_norm_behind(scaled) -> None:
    """Weights -1 and +1 give the same outputs once the batch norm's mean is divided by alpha_c and
    its variance, eps included, by alpha_c^2, as the supplement notes."""
    layer = scaled.network.binary[0]
    signs, alpha = layer.hard_parts()
    norm = nn.BatchNorm1d(len(signs)).eval()
    norm.running_mean.copy_(torch.linspace(-1, 1, len(signs)))
    norm.running_var.copy_(torch.linspace(0.5, 2, len(signs)))
    x = torch.randn(4, signs.shape[1], generator=torch.Generator().manual_seed(0))
    whole = norm(x @ (signs * alpha).T)
    flat = alpha.flatten()
    folded = nn.BatchNorm1d(len(signs), eps=0.0).eval()
    folded.running_mean.copy_(norm.running_mean / flat)
    folded.running_var.copy_((norm.running_var + norm.eps) / flat**2)
    assert torch.allclose(whole, folded(x @ signs.T), atol=1e-5)
