"""Claims about the optimizers of binary weights: the numbers of docs/methods.md 2 and 3, the
equalities between forms of one rule, and what the methods built on them do in their phases."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.latents import (
    LARGEST_NOISE,
    SATURATED,
    Averaged,
    CubeWeight,
    MeanFieldWeight,
    MirroredWeight,
    RelaxedSample,
    SampledWeight,
    Shared,
    StochasticWeight,
    normal_outputs,
)
from bitfront.trainables.methods import METHODS, build_method
from bitfront.trainables.optimizers import (
    BNEW,
    EDGE,
    BayesBiNN,
    Bop,
    ClippedAdam,
    MirrorDescent,
    corner_step_,
    logistic_noise,
    mirror_step,
    relaxed_scale,
    relaxed_weight,
)
from bitfront.trainables.training.checkpoints import load_state, save_state
from bitfront.trainables.training.schedules import phases
from bitfront.trainables.training.schedules.phases import Phase

OWN = [name for name in METHODS if METHODS.get(name).family == "optimizers"]


def number(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def param(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


# --- BayesBiNN, docs/methods.md 2.2 ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("lam", "eps", "w", "s"), [(0.0, 0.5, 0.0, 1.0), (0.0, 0.75, 0.5, 0.75), (1.0, 0.5, None, 1.0)]
)
def test_relaxed_weights_and_their_scale(lam, eps, w, s) -> None:
    delta = logistic_noise(number(eps))
    if eps == 0.75:
        assert float(delta) == pytest.approx(0.5493061, abs=1e-7)
    relaxed = relaxed_weight(number(lam), delta, 1.0)
    if w is not None:
        assert float(relaxed) == pytest.approx(w, abs=1e-9)
    assert float(relaxed_scale(relaxed, number(lam), 1.0)) == pytest.approx(s, abs=1e-9)


def test_the_noise_is_a_logistic_variable_halved() -> None:
    eps = torch.rand(200_000, generator=torch.Generator().manual_seed(0))
    assert float(logistic_noise(eps).std()) == pytest.approx(0.9069, abs=0.01)
    ends = logistic_noise(torch.tensor([0.0, 1.0]))
    assert ends.isfinite().all()
    assert ends.abs().max() <= LARGEST_NOISE


def test_a_step_of_bayesbinn() -> None:
    lam = param(0.5)
    w = relaxed_weight(lam.detach(), logistic_noise(number(0.75)), 1.0)
    assert float(w) == pytest.approx(0.7815365, abs=1e-7)
    scale = relaxed_scale(w, lam.detach(), 1.0)
    assert 100 * float(scale) == pytest.approx(49.488447, abs=1e-6)
    lam.grad = scale * 0.02
    BayesBiNN([lam], lr=0.1, examples=100).step()
    assert lam.item() == pytest.approx(0.3510231, abs=1e-7)


def test_momentum_0_is_the_limit_of_momentum() -> None:
    plain, limit = param(0.5, -2.0), param(0.5, -2.0)
    priors = [torch.tensor([1.0, -1.0], dtype=torch.float64)]
    one = BayesBiNN([plain], 0.1, 10, 0.0, 0.7, priors)
    other = BayesBiNN([limit], 0.1, 10, 1e-12, 0.7, priors)
    for grad in (0.3, -0.1, 0.2):
        for p, optimizer in ((plain, one), (limit, other)):
            p.grad = torch.full_like(p, grad)
            optimizer.step()
    torch.testing.assert_close(plain.data, limit.data)


def test_momentum_follows_its_formula() -> None:
    lam = param(0.5)
    prior = number(0.2)
    optimizer = BayesBiNN([lam], 0.1, 100, momentum=0.9, kl=1.0, priors=[prior])
    by_hand, m = 0.5, 0.0
    for t, grad in enumerate((0.02, -0.01, 0.03), 1):
        lam.grad = number(grad)
        optimizer.step()
        m = 0.9 * m + 0.1 * (100 * grad + by_hand - 0.2)
        by_hand -= 0.1 * m / (1 - 0.9**t)
        assert lam.item() == pytest.approx(by_hand, abs=1e-12)


def test_a_prior_is_what_lam_decays_to() -> None:
    lam, prior = param(3.0), number(-1.0)
    optimizer = BayesBiNN([lam], 0.1, priors=[prior])
    for _ in range(300):
        lam.grad = number(0.0)
        optimizer.step()
    assert lam.item() == pytest.approx(-1.0)


def test_a_certain_weight_is_plus_one_nearly_surely() -> None:
    assert torch.sigmoid(2 * number(10.0)).item() == pytest.approx(0.99999999794, abs=1e-11)


def test_float32_saturates_where_the_temperature_table_needs_it() -> None:
    """docs/methods.md 2.2, 2.11: 1 - tanh(lam)^2 is 0 from |lam| = 9.011 in float32 only."""
    lam = torch.tensor([9.011, 10.0, -12.0])
    assert torch.equal(1 - torch.tanh(lam) ** 2, torch.zeros(3))
    assert (1 - torch.tanh(torch.tensor([8.5])) ** 2).item() > 0
    assert (1 - torch.tanh(lam.double()) ** 2).min() > 0
    w = lam.sign()
    # s / N = (1e-10 / tau) / 1e-10.
    torch.testing.assert_close(relaxed_scale(w, lam, 1e-10), torch.full((3,), 1e10))
    torch.testing.assert_close(relaxed_scale(w, lam, 1e-4), torch.full((3,), 1e4))
    # Below the zone the scale is negligible at a large temperature.
    low = torch.tensor([4.0])
    assert relaxed_scale(low.sign(), low, 1e-4).item() < 1e-2
    assert relaxed_scale(w.double(), lam.double(), 1e-10).max() < 0.5e10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tau", [1e-10, 1e-3, 1.0])
def test_weights_no_noise_can_change_are_not_drawn_and_come_out_the_same(dtype, tau) -> None:
    edge = max(SATURATED[dtype], LARGEST_NOISE + SATURATED[dtype] * tau)
    sure = torch.tensor([edge, -edge, edge + 1, -1e6], dtype=dtype)
    for eps in (0.0, 0.5, 1.0):
        delta = logistic_noise(torch.full_like(sure, eps))
        assert torch.equal(relaxed_weight(sure, delta, tau), sure.sign())
    dense = relaxed_scale(sure.sign(), sure, tau)
    torch.testing.assert_close(dense, torch.full_like(sure, 1 / tau))
    lam = torch.cat([sure, torch.tensor([0.3], dtype=dtype)]).requires_grad_()
    w = RelaxedSample.apply(lam, tau)
    assert torch.equal(w[:4], sure.sign())
    w.sum().backward()
    torch.testing.assert_close(lam.grad[:4], dense)
    expected = relaxed_scale(w.detach()[4], lam.detach()[4], tau)
    torch.testing.assert_close(lam.grad[4], expected)


def test_samples_follow_the_posterior() -> None:
    torch.manual_seed(0)
    lam = torch.tensor([-1.0, 0.0, 0.5]).repeat(40_000, 1)
    drawn = RelaxedSample.apply(lam, 1e-8)
    assert set(drawn.unique().tolist()) == {-1.0, 1.0}
    share = (drawn > 0).float().mean(0)
    torch.testing.assert_close(share, torch.sigmoid(2 * lam[0]), atol=0.01, rtol=0)


def test_with_no_noise_a_cold_first_step_is_a_scaled_one_of_ste() -> None:
    """docs/methods.md 2.10: same weight, and lam <- (1 - a) lam - a s g."""
    lam = torch.tensor([0.4, -2.0, 0.1], dtype=torch.float64)
    w = relaxed_weight(lam, torch.zeros_like(lam), 1e-6)
    assert torch.equal(w, lam.sign())
    g = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
    scale = relaxed_scale(w, lam, 1e-6)
    p = nn.Parameter(lam.clone())
    p.grad = scale * g
    BayesBiNN([p], lr=0.01, examples=7).step()
    torch.testing.assert_close(p.data, 0.99 * lam - 0.01 * 7 * scale * g)


def test_the_average_of_bops_gradients_is_bayesbinns_lam() -> None:
    """docs/methods.md 2.10: Bop's real weight moves by (1 - a) w - a g, BayesBiNN's lam by s g."""
    torch.manual_seed(0)
    lam, w = param(0.0, 0.0), param(1.0, -1.0)
    bayes = BayesBiNN([lam], lr=0.1)
    bop = Bop([w], gamma=0.1, theta=10.0, form="hysteresis")
    for _ in range(5):
        g = torch.randn(2, dtype=torch.float64)
        lam.grad, w.grad = g.clone(), g.clone()
        bayes.step()
        bop.step()
    torch.testing.assert_close(lam.data, bop.state[w]["momentum"])


# --- Bop, docs/methods.md 2.6 ---------------------------------------------------------------------


@pytest.mark.parametrize("form", ["flip", "hysteresis"])
def test_the_flip_sequence_of_bop(form: str) -> None:
    w = param(1.0)
    optimizer = Bop([w], gamma=0.1, theta=0.05, form=form)
    seen = []
    for grad in (0.3, 0.3, -1.0, -1.0):
        w.grad = number(grad)
        optimizer.step()
        seen.append((optimizer.state[w]["momentum"].item(), w.item()))
    turned = -1 if form == "hysteresis" else 1
    moments = [turned * m for m, _ in seen]
    assert moments == pytest.approx([0.03, 0.057, -0.0487, -0.14383])
    assert [value for _, value in seen] == [1.0, -1.0, -1.0, 1.0]


def test_both_forms_of_bop_take_one_path() -> None:
    generator = torch.Generator().manual_seed(1)
    one = nn.Parameter(torch.randn(50, generator=generator).sign())
    other = copy.deepcopy(one)
    optimizers = Bop([one], 0.05, 0.01), Bop([other], 0.05, 0.01, "hysteresis")
    flips = 0
    for _ in range(200):
        grad = torch.randn(50, generator=generator)
        before = one.detach().clone()
        for p, optimizer in zip((one, other), optimizers, strict=True):
            p.grad = grad.clone()
            optimizer.step()
        flips += int((one != before).sum())
        assert torch.equal(one, other)
    assert flips > 100
    assert set(one.unique().tolist()) == {-1.0, 1.0}


def test_a_threshold_that_is_reached_but_not_passed_flips_nothing() -> None:
    for form in ("flip", "hysteresis"):
        w = param(1.0)
        w.grad = number(0.5)
        Bop([w], gamma=0.5, theta=0.25, form=form).step()
        assert w.item() == 1.0
    with pytest.raises(ValueError, match="neither flip nor"):
        Bop([w], form="other")


# --- PMF and mirror descent, docs/methods.md 2.7 and 3.5 ------------------------------------------


def mean_field(plus: float, minus: float, beta: float, jacobian: str) -> tuple[Tensor, ...]:
    """(weight, gradient of u for +1, of u for -1) for a gradient of 1."""
    latent = MeanFieldWeight(Shared(beta), number(0.0), jacobian)
    exact = latent.shift is None  # one number for both: half their difference
    u = number((plus - minus) / 2 if exact else plus).requires_grad_()
    if not exact:
        latent.shift.data = number(minus)
    w = latent.trained(u)
    w.sum().backward()
    return w.detach(), u.grad, -u.grad if exact else latent.shift.grad


def test_the_mean_weight_of_pmf() -> None:
    for jacobian in ("exact", "released"):
        w, *_ = mean_field(0.4, 0.1, 2.0, jacobian)
        assert w.item() == pytest.approx(0.2913126, abs=1e-7)
        assert w.item() == pytest.approx(math.tanh(0.3))
    p = torch.softmax(2 * torch.tensor([0.1, 0.4]), 0)
    assert (p[1] - p[0]).item() == pytest.approx(0.2913126, abs=1e-6)


def test_the_jacobians_of_pmf() -> None:
    p = torch.softmax(2 * torch.tensor([0.1, 0.4], dtype=torch.float64), 0)
    levels = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    for jacobian, first in (("exact", torch.diag(p)), ("released", torch.eye(2).double())):
        minus, plus = 2 * (first - torch.outer(p, p)) @ levels
        _, got_plus, got_minus = mean_field(0.4, 0.1, 2.0, jacobian)
        assert got_plus.item() == pytest.approx(plus.item())
        assert got_minus.item() == pytest.approx(minus.item())


def test_the_exact_jacobian_keeps_both_levels_of_pmf_opposite() -> None:
    """Ten steps of Adam on both levels by autograd, against the one number that is kept."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(20, generator=generator, dtype=torch.float64)
    minus, plus, one = (nn.Parameter(sign * start) for sign in (-1.0, 1.0, 1.0))
    latent = MeanFieldWeight(Shared(1.5), start, "exact")
    both, single = torch.optim.Adam([minus, plus], 0.1), torch.optim.Adam([one], 0.1)
    for _ in range(10):
        towards = torch.randn(20, generator=generator, dtype=torch.float64)
        both.zero_grad()
        single.zero_grad()
        p = torch.softmax(1.5 * torch.stack([minus, plus]), 0)
        ((p[1] - p[0]) * towards).sum().backward()
        (latent.trained(one) * towards).sum().backward()
        both.step()
        single.step()
        torch.testing.assert_close(one.data, plus.data)
        torch.testing.assert_close(minus.data, -plus.data)


def test_the_released_jacobian_hears_gradients_at_the_corners() -> None:
    for plus, minus in ((3.0, -3.0), (-3.0, 3.0)):
        _, *exact = mean_field(plus, minus, 1e4, "exact")
        _, *released = mean_field(plus, minus, 1e4, "released")
        assert all(g.item() == 0 for g in exact)
        assert sum(g.abs().item() for g in released) == pytest.approx(1e4)


def test_a_step_of_mirror_descent() -> None:
    w, grad = number(0.3), number(0.5)
    assert mirror_step(w, grad, 0.1, 2.0).item() == pytest.approx(0.2065066, abs=1e-7)
    e = (1 + w) / (1 - w) * torch.exp(-2 * 0.1 * 2.0 * grad)
    torch.testing.assert_close(mirror_step(w, grad, 0.1, 2.0), (e - 1) / (e + 1))


def test_the_multiplicative_form_is_the_latent_one() -> None:
    """tanh(beta a) with a <- a - eta g, against the step on w itself."""
    generator = torch.Generator().manual_seed(0)
    a = 0.3 * torch.randn(20, generator=generator, dtype=torch.float64)
    w = nn.Parameter(torch.tanh(2.0 * a))
    optimizer = MirrorDescent([w], lr=0.1, beta=2.0)
    for _ in range(10):
        w.grad = torch.randn(20, generator=generator, dtype=torch.float64)
        a -= 0.1 * w.grad
        optimizer.step()
        torch.testing.assert_close(w.data, torch.tanh(2.0 * a))


def test_mirror_descent_survives_the_corners_and_huge_beta() -> None:
    for dtype in (torch.float32, torch.float64):
        corner = torch.tensor([1.0, -1.0, 0.0], dtype=dtype)
        stepped = mirror_step(corner, torch.tensor([1.0, -1.0, 1.0], dtype=dtype), 0.1, 1e35)
        assert stepped.isfinite().all()
        mirrored = MirroredWeight(Shared(1e35)).trained(torch.tensor([2.0, -1e-20, 0.0]))
        assert mirrored.tolist() == [1.0, -1.0, 0.0]


def test_bmd_gives_the_gradient_at_w_to_a_unchanged() -> None:
    a = torch.tensor([0.2, -0.7]).requires_grad_()
    w = MirroredWeight(Shared(3.0)).trained(a)
    assert w[0].item() == pytest.approx(0.5370496, abs=1e-6)
    w.backward(torch.tensor([0.3, -0.4]))
    assert a.grad.tolist() == pytest.approx([0.3, -0.4])


def test_beta_of_bmd_ends_where_the_papers_growth_does() -> None:
    """docs/methods.md 3.10: 2.08e4 after 1000 epochs of 1.01."""
    assert METHODS.get("bmd").params["beta_end"].default == pytest.approx(1.01**999, rel=0.05)
    assert METHODS.get("bmd").params["beta_end"].domain.contains(1e35)


# --- LR-net, docs/methods.md 2.8 ------------------------------------------------------------------


def test_mean_and_variance_of_a_stochastic_weight() -> None:
    mean = StochasticWeight(Shared()).trained(torch.logit(number(0.7)))
    assert mean.item() == pytest.approx(0.4)
    assert (1 - mean**2).item() == pytest.approx(0.84)


def test_theta_begins_as_certain_as_the_weight_is_large() -> None:
    theta = torch.tensor([[1.0, -0.5, 0.0, 0.02]])
    StochasticWeight(Shared()).start(theta)
    torch.testing.assert_close(torch.sigmoid(theta), torch.tensor([[0.95, 0.25, 0.5, 0.51]]))


@pytest.mark.parametrize(
    "layer", [nn.Linear(6, 4), nn.Conv2d(3, 4, 3, padding=1, stride=2, bias=False)]
)
def test_outputs_are_drawn_as_drawn_weights_would_give_them(layer: nn.Module) -> None:
    torch.manual_seed(0)
    mean = torch.tanh(torch.randn_like(layer.weight))
    x = torch.randn(1, 6) if isinstance(layer, nn.Linear) else torch.randn(1, 3, 5, 5)
    bias = layer.bias
    with torch.no_grad():
        local = torch.stack([normal_outputs(layer, x, mean, bias) for _ in range(4000)])
        sampled = []
        for _ in range(4000):
            layer.weight.copy_(torch.where(torch.rand_like(mean) < (1 + mean) / 2, 1.0, -1.0))
            sampled.append(layer(x))
    by_weights = torch.stack(sampled)
    torch.testing.assert_close(local.mean(0), by_weights.mean(0), atol=0.25, rtol=0.1)
    torch.testing.assert_close(local.std(0), by_weights.std(0), atol=0.1, rtol=0.1)


def test_lr_net_is_pushed_to_certain_weights(make_spec, start) -> None:
    training = start(make_spec("lr-net", "W", params={"certainty": 0.5}))
    penalty = training.method.penalty()
    theta = [layer.latent.detach() for layer in training.network.binary]
    p = torch.cat([torch.sigmoid(x).flatten() for x in theta])
    assert penalty.item() == pytest.approx(0.5 * (p * (1 - p)).log().sum().item(), rel=1e-4)
    assert start(make_spec("lr-net", "W", params={"certainty": 0.0})).method.penalty() is None


# --- BNEW, docs/methods.md 3.2 --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("regulariser", "expected"), [("concave", 0.51), ("l1", 0.51), ("l2", 0.504950)]
)
def test_a_step_to_the_corners(regulariser, expected) -> None:
    for sign in (1, -1):
        (stepped,) = corner_step_([number(sign * 0.5)], 0.01, regulariser)
        assert stepped.item() == pytest.approx(sign * expected, abs=1e-6)
        (clipped,) = corner_step_([number(sign * 0.999)], 0.5, regulariser)
        assert abs(clipped.item()) <= 1.0
    if regulariser == "concave":
        assert expected == pytest.approx(0.5 / (1 - 2 * 0.01), abs=3e-4)  # the exact one: .510204


def test_the_growth_of_a_weight_in_an_epoch() -> None:
    for r, growth in ((1e-4, 1.07293), (1e-3, 2.02040)):
        w = [number(1e-3)]
        for _ in range(352):
            corner_step_(w, r, "concave")
        assert 1e3 * w[0].item() == pytest.approx(growth, abs=1e-5)


@pytest.mark.parametrize(
    ("r_final", "epochs", "reached"), [(1e-4, 200, 161), (1e-4, 1000, 361), (1e-3, 1000, 113)]
)
def test_when_a_weight_without_gradient_reaches_its_corner(r_final, epochs, reached) -> None:
    w, epoch = 0.01, 0
    while w < 1:
        w *= (1 + 2 * r_final * (epoch + 1) / epochs) ** 352
        epoch += 1
    assert epoch == pytest.approx(reached, abs=1)


def test_bnew_is_adam_and_a_step_to_the_corners() -> None:
    w, plain = param(0.5, -0.2, 0.99), param(0.5, -0.2, 0.99)
    ours, adam = BNEW([w], lr=0.01, r=0.05), torch.optim.Adam([plain], lr=0.01)
    for grad in ((0.1, -0.3, -1.0), (0.2, 0.1, -1.0)):
        for p in (w, plain):
            p.grad = torch.tensor(grad, dtype=torch.float64)
        ours.step()
        adam.step()
        with torch.no_grad():
            plain.copy_(corner_step_([plain.data.clone()], 0.05, "concave")[0])
        torch.testing.assert_close(w.data, plain.data)
    assert w[2].item() == 1.0


def test_latents_of_ste_adam_are_clipped_and_frozen_ones_left_alone() -> None:
    moving, frozen = param(0.99, -0.99), param(3.0)
    optimizer = ClippedAdam([moving, frozen], lr=0.5)
    moving.grad = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    optimizer.step()
    assert moving.tolist() == [1.0, -1.0]
    assert frozen.item() == 3.0


# --- what the methods do in training ------------------------------------------------------------


def test_a_projection_of_zero_is_plus_one() -> None:
    (w,) = corner_step_([torch.zeros(1)], 0.1, "l1")
    assert w.item() == pytest.approx(0.1)
    assert CubeWeight(Shared()).sign(torch.zeros(1)).item() == 1.0
    drawn = SampledWeight(Shared(1.0), torch.zeros(1), 10.0)
    assert drawn.sign(torch.zeros(1)).item() == 1.0


@pytest.mark.parametrize("name", OWN)
def test_everything_outside_the_plan_keeps_the_tasks_optimizer(make_spec, start, name) -> None:
    training = start(make_spec(name, "W", params={"real_share": 0.0}))
    (rest, _), (own, _) = training.optimizers
    latents = {id(layer.latent) for layer in training.network.binary}
    mine = {id(p) for group in own.param_groups for p in group["params"]}
    others = {id(p) for group in rest.param_groups for p in group["params"]}
    assert latents <= mine
    assert not mine & others
    assert mine | others == {id(p) for p in training.model.parameters()}
    assert type(rest) is torch.optim.Adam


def test_learning_rates_of_both_optimizers_follow_the_schedule(make_spec, start) -> None:
    spec = make_spec("ste-adam", "W", params={"lr": 0.5}, optimizer={"lr": 0.02})
    training = start(spec)
    training.epoch()
    rates = [group["lr"] for o, _ in training.optimizers for group in o.param_groups]
    assert rates[1] / rates[0] == pytest.approx(25)
    assert rates[0] < 0.02


def test_the_weights_of_bop_are_binary_at_every_moment(make_spec, start, finish) -> None:
    training = start(make_spec("bop", "W"))
    for layer in training.network.binary:
        assert set(layer.latent.unique().tolist()) == {-1.0, 1.0}
    finish(training)
    for layer in training.network.binary:
        assert set(layer.latent.unique().tolist()) == {-1.0, 1.0}
        training.model.train()
        assert torch.equal(layer.module.weight, layer.latent)


def test_gamma_decays_over_training(make_spec, start, finish) -> None:
    training = finish(start(make_spec("bop", "W")))
    (group,) = training.optimizers[1][0].param_groups
    assert group["gamma"] == pytest.approx(1e-7)


@pytest.mark.parametrize("augmentation", ["none", "crop-flip"])
def test_bayesbinn_counts_the_examples(make_spec, start, augmentation: str) -> None:
    training = start(make_spec("bayesbinn", "W", augmentation=augmentation))
    (group,) = training.optimizers[1][0].param_groups
    times = 10 if augmentation == "crop-flip" else 1
    assert group["examples"] == times * len(training.train)


def test_lam_begins_at_plus_or_minus_its_start(make_spec, start) -> None:
    training = start(make_spec("bayesbinn", "W", params={"lam_init": 15.0}))
    for layer in training.network.binary:
        assert layer.latent.abs().unique().tolist() == [15.0]


def test_a_step_takes_the_mean_over_samples(make_spec, start) -> None:
    training = start(make_spec("bayesbinn", "W", params={"samples": 3, "tau": 1.0}))
    x, y = training.train.x[:20], training.train.y[:20]
    training.model.train()
    torch.manual_seed(5)
    training._gradients(training.loss, x, y)
    together = training.network.binary[0].latent.grad.clone()
    torch.manual_seed(5)
    alone = torch.zeros_like(together)
    for _ in range(3):
        training.model.zero_grad()
        training.loss(training.model, x, y).backward()
        alone += training.network.binary[0].latent.grad / 3
    torch.testing.assert_close(together, alone)


def test_the_mean_prediction_is_reported_beside_the_mode(make_spec, start, finish) -> None:
    params = {"mean_samples": 5, "tau": 1.0, "lam_init": 1.0, "samples": 2}
    training = finish(start(make_spec("bayesbinn", "W", params=params, binarize="all")))
    assert "val_accuracy_mean" in training.history[-1]
    assert "val_accuracy_mean" not in training.history[0]
    mean = training.method.predictions(training.model, training.kind.combine, 0)
    x = training.validation.x[:7]
    outputs = mean.eval().outputs(x)
    assert outputs.shape == (5, 7, 10)
    assert not torch.equal(outputs[0], outputs[1])
    assert torch.equal(mean(x), mean(x))
    torch.testing.assert_close(mean(x).exp(), outputs.softmax(-1).mean(0))
    mean.average = "logits"
    torch.testing.assert_close(mean(x), outputs.mean(0))
    assert training.method.shared.draws is None


def test_the_mean_of_certain_weights_is_the_mode(make_spec, start) -> None:
    training = start(make_spec("bayesbinn", "W", params={"mean_samples": 3, "lam_init": 50.0}))
    mean = training.method.predictions(training.model, training.kind.combine, 0)
    assert isinstance(mean, Averaged)
    x = training.validation.x[:9]
    mode = training.model.eval()(x)
    torch.testing.assert_close(mean.eval()(x), mode.log_softmax(-1))


def test_measuring_the_mean_does_not_disturb_training(make_spec, start, finish) -> None:
    runs = [finish(start(make_spec("bayesbinn", "W", params={"mean_samples": n}))) for n in (0, 4)]
    pairs = zip(*(run.network.binary for run in runs), strict=True)
    assert all(torch.equal(one.latent, other.latent) for one, other in pairs)
    assert torch.equal(*(run.state_dict()["random"] for run in runs))


# --- phases, docs/methods.md 3.1 ------------------------------------------------------------------


def test_the_phases_of_bnew() -> None:
    made = build_method("bnew", {}).phases(400)
    assert [(p.name, p.epochs) for p in made] == [("real", 200), ("quantise", 180), ("freeze", 20)]
    assert [p.real for p in made] == [True, False, False]
    assert [p.best for p in made] == [False, True, False]
    assert [p.continues for p in made] == [False, False, True]
    alone = build_method("bnew", {"real_share": 0.0, "freeze_share": 0.02}).phases(1000)
    assert [(p.name, p.epochs) for p in alone] == [("quantise", 980), ("freeze", 20)]
    assert not alone[0].best


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("epochs", [1, 2, 3, 4, 11])
def test_phases_share_out_any_number_of_epochs(name: str, epochs: int) -> None:
    for share in (0.0, 0.5):
        made = build_method(name, {"real_share": share}).phases(epochs)
        phases.check(made, epochs)
        assert not made[-1].real


def test_a_phase_that_continues_belongs_to_the_run_before() -> None:
    made = [Phase("a", 4), Phase("b", 3), Phase("c", 2, continues=True), Phase("d", 1)]
    assert [phases.run_of(made, i) for i in range(4)] == [(0, 4), (1, 5), (1, 5), (3, 1)]


def test_bnew_goes_from_real_to_frozen_signs(make_spec, start) -> None:
    spec = make_spec("bnew", "B", params={"freeze_share": 0.3, "r": 0.01}, epochs=8)
    training = start(spec)
    assert [p.epochs for p in training.phases] == [4, 3, 1]
    layers = training.network.binary
    kept, rates = [], []
    while not training.done:
        training.epoch()
        rates.append(training.optimizer.param_groups[0]["lr"])
        kept.append([layer.latent.detach().clone() for layer in layers])
        assert all(w.abs().max() <= 1 for w in kept[-1])
    assert all(w.unique().numel() > 2 for w in kept[3])
    assert all(set(w.unique().tolist()) == {-1.0, 1.0} for w in kept[7])
    history = training.history
    assert ["acc_soft" in row for row in history] == [True] * 4 + [False] * 4
    assert ["soft_gap" in row for row in history] == [True] * 7 + [False]
    assert history[6]["distance_to_binary"] < history[3]["distance_to_binary"]
    assert history[7]["distance_to_binary"] == 0
    # The learning rate starts anew with the second phase, not with the freeze.
    assert rates[3] < rates[4] > rates[5] > rates[6] > rates[7]


def test_frozen_signs_do_not_move_while_the_rest_learns(make_spec, start) -> None:
    spec = make_spec("bnew", "W", params={"real_share": 0.0, "freeze_share": 0.5}, epochs=4)
    training = start(spec)
    for _ in range(3):
        training.epoch()
    latents = [layer.latent.detach().clone() for layer in training.network.binary]
    classifier = training.model.classifier.weight.detach().clone()
    training.epoch()
    pairs = zip(latents, training.network.binary, strict=True)
    assert all(torch.equal(before, layer.latent) for before, layer in pairs)
    assert not torch.equal(classifier, training.model.classifier.weight)


def test_a_network_with_nothing_but_frozen_signs_goes_on(make_spec, start, finish) -> None:
    model = {"name": "bayesbinn-mlp", "depth": 1, "width": 16}
    spec = make_spec("bnew", "W", params={"freeze_share": 0.5}, model=model, binarize="all")
    training = finish(start(spec))
    training.network.verify()
    assert len(training.optimizers) == 1


@pytest.mark.parametrize("name", OWN)
def test_a_plan_without_binary_layers_is_ordinary_training(make_spec, start, finish, name) -> None:
    params = {"real_share": 0.5}
    training = finish(start(make_spec(name, plan="FF", params=params, epochs=2)))
    assert len(training.optimizers) == 1


@pytest.mark.parametrize("after", [2, 5, 7])
@pytest.mark.parametrize("name", ["bnew", "bayesbinn", "pmf"])
def test_a_run_interrupted_in_any_phase_ends_the_same(
    make_spec, start, finish, tmp_path, name: str, after: int
) -> None:
    params = {"real_share": 0.5, **({"freeze_share": 0.4} if name == "bnew" else {})}
    spec = make_spec(name, "B", params=params, epochs=8)
    whole = start(spec)
    for _ in range(after):
        whole.epoch()
    save_state(whole, tmp_path / "state.pt")
    finish(whole)
    torch.manual_seed(99)
    resumed = start(spec)
    assert load_state(resumed, tmp_path / "state.pt")
    finish(resumed)
    pairs = zip(whole.model.state_dict().values(), resumed.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("regulariser", ["l1", "l2"])
def test_the_other_regularisers_reach_the_corners_too(make_spec, start, regulariser) -> None:
    params = {"regulariser": regulariser, "r": 0.1, "real_share": 0.0, "freeze_share": 0.0}
    training = start(make_spec("bnew", "W", params=params, epochs=6))
    while not training.done:
        training.epoch()
    distances = [row["distance_to_binary"] for row in training.history]
    assert distances[-1] < distances[0]


def test_real_weights_first_are_clipped_and_no_latents(make_spec, start) -> None:
    spec = make_spec("ste-adam", "W", params={"real_share": 0.5}, optimizer={"lr": 1.0})
    training = start(spec)
    assert len(training.optimizers) == 1
    training.epoch()
    layer = training.network.binary[0]
    assert layer.latent.abs().max() == 1.0
    training.model.train()
    assert torch.equal(layer.module.weight, layer.latent)
    training.epoch()
    training.epoch()
    assert len(training.optimizers) == 2
    training.model.train()
    assert set(layer.module.weight.unique().tolist()) == {-1.0, 1.0}


def test_the_surrogate_of_the_input_sign_is_a_switch(make_spec, start) -> None:
    x = torch.tensor([[0.5, 0.9] + [0.0] * 22]).requires_grad_()
    for word, expected in (("poly", [1.0, 0.2]), ("classic", [1.0, 1.0])):
        training = start(make_spec("bnew", "B", params={"sign_grad": word}))
        training.model.train()
        quantizer = training.network.binary[0].module.input_quantizer
        (grad,) = torch.autograd.grad(quantizer(x).sum(), x)
        assert grad[0, :2].tolist() == pytest.approx(expected)


def test_tasks_in_a_row_have_the_phases_of_each() -> None:
    made = phases.for_each_task(lambda n: [Phase("binary", n)], 6, 3)
    assert [(p.epochs, p.task) for p in made] == [(2, 0), (2, 1), (2, 2)]
    with pytest.raises(UserError, match="cannot be real in the next"):
        phases.for_each_task(build_method("bnew", {}).phases, 6, 3)
    with pytest.raises(UserError, match="cannot be shared equally by 3 tasks"):
        phases.for_each_task(lambda n: [Phase("binary", n)], 7, 3)


def test_edge_is_what_the_largest_noise_assumes() -> None:
    assert 0.5 * math.log((1 - EDGE) / EDGE) <= LARGEST_NOISE
