"""Claims about options that papers or their released code have beside the form of the table:
numbers worked out by hand, or a few lines that share nothing with the code."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from bitfront.trainables.layers.pruning import counts, survivors, survivors_by_stirling
from bitfront.trainables.layers.quantizers import composed_pair, sign_swish
from bitfront.trainables.layers.sparse import FactoredWeight, SharedValue
from bitfront.trainables.methods import METHODS, build_method
from bitfront.trainables.models import build_model
from bitfront.trainables.optimizers.bnew import corner_step_
from bitfront.trainables.parameters import without_later

pytestmark = pytest.mark.slow

# --- the weights of the released Bi-Real (docs/methods.md 1.5) ----------------------------------


def latent_gradient(start: Any, make_spec: Any, level: str, params: dict[str, Any]) -> Any:
    """(layer, the gradient of its weight, the gradient of its latent) after one backward pass; some
    latents are outside of [-1, 1]."""
    training = start(make_spec("bi-real", level, params=params))
    training.model.train()
    layer = training.network.binary[0]
    with torch.no_grad():
        layer.latent.mul_(torch.linspace(0.1, 12.0, 24).view(-1, 1))
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(50, 24, generator=generator) for _ in range(2))
    if level == "A":
        out = layer.module(x)
        (out * y).sum().backward()
        return layer, (x, y), layer.latent.grad
    layer.module.weight.backward(y[:24])
    return layer, y[:24], layer.latent.grad


def test_the_released_weight_rule_passes_the_gradient_without_scale_and_triangle(
    make_spec, start
) -> None:
    """dL/dw = 1[|w| <= 1] dL/d(s sign w)."""
    params = {"scale": "channel", "weight_grad": "released"}
    layer, g, got = latent_gradient(start, make_spec, "B", params)
    w = layer.latent.detach()
    inside = w.abs() <= 1
    assert 0 < int(inside.sum()) < inside.numel()
    assert torch.equal(got, torch.where(inside, g, torch.zeros_like(g)))
    s = w.abs().mean(1, keepdim=True)
    torch.testing.assert_close(layer.module.weight.detach(), torch.where(w >= 0, s, -s))


def test_the_released_weight_rule_by_hand() -> None:
    """w = (0.5, -1.5, 1, -0.25) has s = 3.25 / 4 = 0.8125. With x = (1, 2, 3, 4) the output is
    s (1 - 2 + 3 - 4) = -1.625; for L = 3 y the weights hear 3 x, the latents too but for -1.5."""
    layer = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.5, -1.5, 1.0, -0.25]]))
    method = build_method("bi-real", {"scale": "channel", "weight_grad": "released"})
    parametrize.register_parametrization(layer, "weight", method.weight_quantizer(layer))
    y = layer(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    assert y.item() == -1.625
    (3 * y.sum()).backward()
    got = layer.parametrizations.weight.original.grad
    assert got.tolist() == [[3.0, 0.0, 9.0, 12.0]]


def test_the_triangle_has_the_scale_and_the_slope_of_the_table(make_spec, start) -> None:
    """dL/dw = s max(0, 2 - 2 |w|) dL/d(s sign w): what ProxConnect++ writes for Bi-Real."""
    layer, g, got = latent_gradient(start, make_spec, "B", {"scale": "channel"})
    w = layer.latent.detach()
    s = w.abs().mean(1, keepdim=True)
    torch.testing.assert_close(got, s * (2 - 2 * w.abs()).clamp_min(0) * g)


def test_a_learned_scale_of_the_released_rule_is_still_learned(make_spec, start) -> None:
    """dL/ds = sum sign(w) dL/d(s sign w) over the output channel."""
    params = {"scale": "learned", "weight_grad": "released"}
    layer, g, got = latent_gradient(start, make_spec, "W", params)
    w = layer.latent.detach()
    assert torch.equal(got, torch.where(w.abs() <= 1, g, torch.zeros_like(g)))
    expected = (torch.where(w >= 0, 1.0, -1.0) * g).sum(1, keepdim=True)
    torch.testing.assert_close(layer.quantizer.learned.grad, expected)


def test_the_released_rule_holds_where_sums_are_scaled(make_spec, start) -> None:
    """At level A y = s c(z): with an accumulator that never wraps the latent hears what it hears
    where the weight is scaled, 1[|w| <= 1] times sum over examples of dL/dy sign(x)."""
    params = {"scale": "channel", "weight_grad": "released", "acc_bits": 16}
    layer, (x, y), got = latent_gradient(start, make_spec, "A", params)
    w = layer.latent.detach()
    plain = y.T @ torch.where(x >= 0, 1.0, -1.0)
    torch.testing.assert_close(got, torch.where(w.abs() <= 1, plain, torch.zeros_like(plain)))


def test_inputs_keep_the_triangle_under_the_released_rule(make_spec, start) -> None:
    training = start(make_spec("bi-real", "B", params={"weight_grad": "released"}))
    training.model.train()
    x = torch.linspace(-2, 2, 24).repeat(2, 1).requires_grad_()
    training.network.binary[0].module.input_quantizer(x).sum().backward()
    torch.testing.assert_close(x.grad, (2 - 2 * x.detach().abs()).clamp_min(0))


def test_under_sgd_the_released_rule_learns_digits_faster(make_spec, start, finish) -> None:
    """The triangle and the factor s shorten every step of a latent; with the same rate the released
    rule is ahead after the same epochs, with every seed."""

    def loss(seed: int, rule: str) -> float:
        spec = make_spec(
            "bi-real",
            "B",
            params={"scale": "channel", "weight_grad": rule},
            seed=seed,
            subset=600,
            epochs=4,
            optimizer={"name": "sgd", "lr": 0.1},
            schedule="constant",
            model={"name": "cresnet", "depth": 8, "width": 8},
        )
        return float(finish(start(spec)).history[-1]["train_loss"])

    for seed in (0, 1, 2):
        assert loss(seed, "released") < loss(seed, "triangle")


# --- robust pruning (docs/methods.md 5.6, 5.8) --------------------------------------------------


def trained_by(make_spec: Any, start: Any, finish: Any, **fields: Any) -> Any:
    return finish(start(make_spec(params={"rate": 0.5, **fields.pop("params", {})}, **fields)))


def test_survivors_of_random_pruning_are_those_of_the_paper() -> None:
    """A layer of 256 x 256 kernels of 3 x 3 at r = 0.99: 8.19 kernels with three weights and 0.18
    with four by its formula."""
    n = 256 * 256 * 9
    m = n // 100
    assert survivors_by_stirling(n, m, 3) == pytest.approx(8.19, abs=0.005)
    assert survivors_by_stirling(n, m, 4) == pytest.approx(0.18, abs=0.005)
    exact = survivors(n, m)
    assert sum(exact) == pytest.approx(256 * 256)
    assert sum(k * count for k, count in enumerate(exact)) == pytest.approx(m)
    assert exact[3] == pytest.approx(256 * 256 * 84 * 0.01**3 * 0.99**6, rel=1e-3)
    assert exact[3] == pytest.approx(5.18, abs=0.01)


def test_survivors_of_a_small_layer_are_counted_out() -> None:
    """Two kernels of two weights, two of four kept: 6 masks, of which 2 leave a kernel whole."""
    masks = list(itertools.combinations(range(4), 2))
    counts = [0.0, 0.0, 0.0]
    for mask in masks:
        for kernel in ((0, 1), (2, 3)):
            counts[len(set(mask) & set(kernel))] += 1 / len(masks)
    assert survivors(4, 2, part=2) == pytest.approx(counts)


def test_p_of_no_survivor_has_the_minus_that_the_paper_lacks() -> None:
    """P(X = 0) = (1 - 9/n)^m ~ e^(-9 (1 - r)) of Appendix A.4, printed without the sign."""
    n = 256 * 256 * 9
    assert survivors(n, n // 100)[0] / (256 * 256) == pytest.approx(math.exp(-0.09), rel=1e-3)


def test_survivors_of_channels_gather_around_their_mean() -> None:
    """Eq. (11), P(Y = k) ~ sqrt(m / (2 pi k (m - k))) (c'/k)^k (1 - 1/r_in)^(m - k) with
    c' = 9 e r_out (1 - r), is the binomial law of m draws among r_in channels by Stirling. Both
    that and the exact law are greatest near m / r_in = 23.04."""
    r_in = r_out = 256
    n, part = 9 * r_in * r_out, 9 * r_out
    m = n // 100
    printed = [survivors_by_stirling(n, m, k, part, whole=True) for k in range(1, 60)]
    c = 9 * math.e * r_out * m / n
    for k in (10, 23, 40):
        law = math.sqrt(m / (2 * math.pi * k * (m - k))) * (c / k) ** k
        law *= (1 - 1 / r_in) ** (m - k)
        assert printed[k - 1] == pytest.approx(r_in * law)
        binomial = math.comb(m, k) * (1 / r_in) ** k * (1 - 1 / r_in) ** (m - k)
        # It has e^k in place of (1 + k/(m - k))^(m - k), and Stirling's formula adds e^(1/12k).
        left_out = math.exp(k - (m - k) * math.log1p(k / (m - k)))
        assert law / binomial == pytest.approx(left_out * math.exp(1 / (12 * k)), rel=1e-3)
    assert 1 + max(range(59), key=printed.__getitem__) in (22, 23)
    exact = survivors(n, m, part)
    assert sum(exact) == pytest.approx(r_in)
    assert max(range(len(exact)), key=exact.__getitem__) == 23
    assert exact[0] < 1e-6  # no channel is empty by chance, those of trained masks are


def test_17_of_1728_weights_are_left_as_the_text_says_and_18_as_released(make_spec) -> None:
    """Appendix A.1: r = 0.99 leaves 17 of the 1,728 weights of a 3 -> 64 convolution of 3 x 3; the
    code zeroes int(0.99 n) and keeps 18. Rounded down, (1 - r) of all weights is never exceeded."""
    sizes = [9 * 3 * 64, 9 * 64 * 64, 9 * 64 * 128, 9 * 128 * 128]
    assert counts(sizes, 0.99, 1.0)[0] == 1728 - int(0.99 * 1728) == 18
    assert counts(sizes, 0.99, 1.0, down=True)[0] == 17
    for p in (0.0, 0.1, 0.5, 1.0):
        assert sum(counts(sizes, 0.9, p, down=True)) <= 0.1 * sum(sizes)
    down, up = ({"p": 1.0, "rounding": r} for r in ("down", "up"))
    kept = [METHODS.get("edge-popup")(v).kept({"stem": 1728}) for v in (down, up)]
    assert kept == [{"stem": 17}, {"stem": 18}]
    old = make_spec("edge-popup", "W", params={"p": 1.0})
    assert old.fingerprint() == make_spec("edge-popup", "W", params=up).fingerprint()
    assert old.fingerprint() != make_spec("edge-popup", "W", params=down).fingerprint()


def test_a_weight_that_atmc_pruned_may_return() -> None:
    """Projected gradient on |w - (0, 2)|^2 / 2 with one weight kept, from (1, 0.9) with step 1/2:
    (0.5, 1.45) -> (0, 1.45) -> (0, 1.725): the second takes the place of the first."""
    quantizer = SharedValue(torch.zeros(1, 2), binary=False)
    quantizer.set_kept(1)
    w = torch.tensor([[1.0, 0.9]], requires_grad=True)
    quantizer.keep_greatest(w.detach())
    assert quantizer.mask.tolist() == [[True, False]]
    for expected in ([[0.0, 1.45]], [[0.0, 1.725]]):
        w.grad = None
        (0.5 * (quantizer(w) - torch.tensor([[0.0, 2.0]])) ** 2).sum().backward()
        with torch.no_grad():
            w -= 0.5 * w.grad
        quantizer.keep_greatest(w.detach())
        w.detach().mul_(quantizer.mask)
        torch.testing.assert_close(w.detach(), torch.tensor(expected))


@pytest.mark.parametrize("shape", [(3, 5), (5, 3)])
def test_the_weight_of_atmc_is_a_product_and_a_rest(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    v, c = (torch.randn(shape, generator=generator) for _ in range(2))
    u = torch.randn(3, 3, generator=generator)
    quantizer = FactoredWeight(v, binary=False)
    torch.testing.assert_close(quantizer(v), v)  # at first the weight itself
    with torch.no_grad():
        quantizer.factor.copy_(u)
        quantizer.rest.copy_(c)
    one = torch.eye(3)
    expected = (one + u) @ v + c if shape == (3, 5) else v @ (one + u) + c
    torch.testing.assert_close(quantizer(v), expected)


def test_the_factors_of_atmc_share_one_budget() -> None:
    """Of U = 0.5 I, V = (1, 2; 3, 4) and C = (5, 0; 0, 0) the three greatest are 5, 4 and 3."""
    v = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    quantizer = FactoredWeight(v, binary=False)
    quantizer.set_kept(3)
    with torch.no_grad():
        quantizer.factor.copy_(0.5 * torch.eye(2))
        quantizer.rest[0, 0] = 5.0
    quantizer.keep_greatest(v)
    v.mul_(quantizer.mask)
    assert v.tolist() == [[0.0, 0.0], [3.0, 4.0]]
    assert quantizer.factor.count_nonzero() == 0
    assert quantizer.rest.tolist() == [[5.0, 0.0], [0.0, 0.0]]
    assert quantizer.stored(v) == 3


def test_atmc_with_the_low_rank_term_learns_within_its_budget(make_spec, start, finish) -> None:
    fields = {"epochs": 8, "subset": 600, "params": {"low_rank": True}}
    training = trained_by(make_spec, start, finish, method="atmc", level="S", **fields)
    assert [p.name for p in training.phases] == ["dense", "sparse", "factored"]
    training.network.verify()
    layers = training.network.binary
    assert all(layer.stored() == layer.kept for layer in layers)
    assert any(layer.quantizer.factor.any() or layer.quantizer.rest.any() for layer in layers)
    assert training.history[-1]["val_accuracy"] > 0.6


def test_atmc_has_four_phases_where_some_layers_have_factors_and_some_are_binary(
    make_spec, start, finish
) -> None:
    """A product of factors is not binary: W layers end with one value per layer, S layers keep to
    their budget until the end."""
    spec = make_spec("atmc", "S", params={"rate": 0.5, "low_rank": True}, epochs=4, subset=200)
    mixed = spec.model_copy(update={"plan": "W" + spec.plan[1:]})
    assert len(mixed.plan) > 1
    training = finish(start(mixed))
    phases = {p.name: p.epochs for p in training.phases}
    assert phases == {"dense": 1, "sparse": 1, "factored": 1, "shared": 1}
    training.network.verify()
    binary, *factored = training.network.binary
    signs, value = binary.hard_parts()
    assert signs.unique().tolist() == [-1.0, 0.0, 1.0]
    assert value is not None
    assert value.numel() == 1
    assert not isinstance(binary.quantizer, FactoredWeight)
    assert all(layer.stored() == layer.kept for layer in factored)
    assert all(isinstance(layer.quantizer, FactoredWeight) for layer in factored)


def test_binary_layers_of_atmc_do_not_ask_for_factors(make_spec, start, finish) -> None:
    fields = {"level": "W", "epochs": 4, "subset": 200}
    with_, without = (
        trained_by(make_spec, start, finish, method="atmc", params={"low_rank": on}, **fields)
        for on in (True, False)
    )
    assert with_.history[-1]["train_loss"] == without.history[-1]["train_loss"]


@pytest.mark.parametrize(
    ("name", "epochs", "expected"),
    [
        ("hydra", 110, {"dense": 50, "prune": 10, "tune": 50}),
        ("atmc", 200, {"dense": 50, "sparse": 100, "shared": 50}),
    ],
)
def test_phases_have_the_epochs_of_the_paper(make_spec, start, name, epochs, expected) -> None:
    training = start(make_spec(name, "W", params={"rate": 0.5}, epochs=epochs))
    assert {p.name: p.epochs for p in training.phases} == expected
    rates = {p.name: p.rate for p in training.phases}
    assert rates.get("tune", 0.1) == 0.1  # HYDRA tunes at 0.01, a tenth of 0.1


@pytest.mark.parametrize(("name", "attack"), [("at", "pgd"), ("trades", "trades")])
def test_adversarial_training_keeps_its_name_in_full_precision(make_spec, name, attack) -> None:
    spec = make_spec(name, "F", params={"clamp": False})
    one = spec.canonical()
    assert (one.method, one.params, one.task.attack.train) == (name, {}, attack)
    assert one.canonical() == one
    plain = make_spec("fp", "F", attack={"eps": 0.05, "steps": 2, "train": attack})
    assert one.fingerprint() == plain.fingerprint()  # the same training, and the ids of 0.1
    assert make_spec("rst", "F").canonical().method == "fp"


def test_full_precision_under_its_own_name_trains_as_before(make_spec, start, finish) -> None:
    image = {"model": {"name": "rn-narrow", "width": 4, "stages": 1}, "epochs": 1}
    named = finish(start(make_spec("at", "F", **image).canonical()))
    attack = {"eps": 0.05, "steps": 2, "train": "pgd"}
    plain = finish(start(make_spec("fp", "F", attack=attack, **image)))
    assert named.history[-1]["train_loss"] == plain.history[-1]["train_loss"]


def test_rn34_has_a_stem_for_large_images() -> None:
    """7 x 7 of stride 2 and a max-pool: 7 * 7 instead of 3 * 3 weights per channel, and maps of a
    quarter of the size."""
    stems = ("cifar", "imagenet")
    small, large = (build_model("rn34", {"stem": s}, (3, 64, 64), 10) for s in stems)
    count = [sum(p.numel() for p in m.parameters()) for m in (small, large)]
    assert count[1] - count[0] == 3 * 64 * (49 - 9)
    x = torch.zeros(1, 3, 64, 64)
    assert small.eval().stem(x).shape[-1] == 64
    assert large.eval().stem(x).shape[-1] == 16


# --- schedules of BayesBiNN's rivals (docs/methods.md 2.14) -------------------------------------


def rates_of(training: Any, finish: Any) -> list[float]:
    """The learning rate of the latents' optimizer at every step."""
    own, seen = training.optimizers[-1][0], []
    step = own.step
    own.step = lambda *args: (seen.append(own.param_groups[0]["lr"]), step(*args))
    finish(training)
    return seen


def test_the_rate_of_pmf_falls_by_a_fifth_every_so_many_steps(make_spec, start, finish) -> None:
    """Table 9: times 0.2 every 7,000 of 270,000 steps; here every 5 of 20."""
    params = {"lr": 0.01, "lr_shape": "steps", "lr_every": 0.25, "lr_factor": 0.2}
    training = start(make_spec("pmf", "W", params=params, schedule="cosine"))
    seen = rates_of(training, finish)
    assert len(seen) == 20
    assert seen == pytest.approx([0.01 * 0.2 ** (i // 5) for i in range(20)])


def test_a_constant_rate_stays_while_the_task_has_another(make_spec, start, finish) -> None:
    """Table 4: STE at 1e-1 from the first epoch to the last, while BayesBiNN's rate falls."""
    task = {"schedule": {"shape": "exponential", "end_factor": 0.1}}
    constant = {"lr": 0.1, "lr_shape": "constant"}
    assert set(rates_of(start(make_spec("ste-adam", "W", params=constant, **task)), finish)) == {
        0.1
    }
    falling = rates_of(start(make_spec("ste-adam", "W", params={"lr": 0.1}, **task)), finish)
    assert falling[0] == pytest.approx(0.1)
    assert falling[-1] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("bi-real", {"weight_grad": "released"}),
        ("pmf", {"lr_shape": "steps"}),
        ("atmc", {"low_rank": True}),
    ],
)
def test_parameters_that_came_later_change_ids_only_where_they_are_used(
    make_spec, method: str, given: dict[str, Any]
) -> None:
    name = next(iter(given))
    spec = make_spec(method, "W")
    declared = METHODS.get(method).params
    default = spec.model_copy(update={"params": {name: declared[name].default}})
    assert declared[name].later
    assert default.fingerprint() == spec.fingerprint()
    assert spec.model_copy(update={"params": given}).fingerprint() != spec.fingerprint()
    older = {k: v for k, v in spec.canonical().params.items() if not declared[k].later}
    assert without_later(declared, spec.canonical().params) == older


# --- the exact step of BNEW (docs/methods.md 3.2) -----------------------------------------------


def best_on_a_grid(u: float, r: float) -> float:
    """The w in [-1, 1] of least (w - u)^2 / 2 - r w^2, by looking at all of them."""
    w = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    return float(w[((w - u) ** 2 / 2 - r * w**2).argmin()])


@pytest.mark.parametrize("r", [0.0, 0.01, 0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("u", [-0.93, -0.2, 0.05, 0.4, 0.7])
def test_the_exact_step_solves_the_proximal_problem(u: float, r: float) -> None:
    (w,) = corner_step_([torch.tensor([u], dtype=torch.float64)], r, "concave", exact=True)
    assert float(w) == pytest.approx(best_on_a_grid(u, r), abs=2e-5)


def test_the_first_order_is_near_for_small_r_alone() -> None:
    """u = 0.5: 0.51 and 0.510204 at r = 0.01; 0.6 and 0.625 at r = 0.1."""
    for r, first, exact in ((0.01, 0.51, 0.5102041), (0.1, 0.6, 0.625)):
        for form, expected in ((False, first), (True, exact)):
            (w,) = corner_step_([torch.tensor([0.5])], r, "concave", form)
            assert float(w) == pytest.approx(expected, abs=1e-6)


def test_the_steps_of_theorem_1_descend_as_its_proof_says() -> None:
    """f(w) = (w - a)' A (w - a) / 2 with eigenvalues up to beta, F = f - lam |w|^2 over the cube,
    eta = 1 / (2 beta): F falls by beta / 2 |step|^2 at least, and of T steps the shortest
    squared is at most 2 (F(w0) - F*) / (beta T)."""
    generator = torch.Generator().manual_seed(1)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64)).Q
    beta, lam = 3.0, 0.7
    a = turn @ torch.diag(torch.linspace(0.1, beta, 6, dtype=torch.float64)) @ turn.T
    target = torch.randn(6, generator=generator, dtype=torch.float64)

    def value(w: torch.Tensor) -> float:
        return float((w - target) @ a @ (w - target) / 2 - lam * w @ w)

    w = torch.rand(6, generator=generator, dtype=torch.float64) - 0.5
    first, least = value(w), 1e9
    eta = 1 / (2 * beta)
    for steps in range(1, 61):
        before = w.clone()
        w = corner_step_([w - eta * a @ (w - target)], eta * lam, "concave", exact=True)[0]
        length = float((w - before) @ (w - before))
        assert value(before) - value(w) >= beta / 2 * length - 1e-12
        least = min(least, length)
        assert least <= 2 * (first - value(w)) / (beta * steps) + 1e-12


def test_bnew_uses_the_step_it_is_told(make_spec, start, finish) -> None:
    spec = make_spec("bnew", "B", params={"r": 0.3, "step": "exact"})
    training = finish(start(spec))
    assert training.optimizers[-1][0].param_groups[0]["exact"]
    training.network.verify()


def test_without_pretraining_a_tenth_of_200_epochs_is_frozen(make_spec, start) -> None:
    params = {"real_share": 0.0, "freeze_share": 0.1}
    phases = start(make_spec("bnew", "B", params=params, epochs=200)).phases
    assert [(p.name, p.epochs) for p in phases] == [("quantise", 180), ("freeze", 20)]


# --- BNN++ composed with a proximal quantizer (docs/methods.md 1.4) -----------------------------


def test_bnn_plus_plus_composed_with_l_is_the_pair_of_example_3() -> None:
    """F = SS(L(w)), B = SS'(L(w)). With rho = varrho = 0.2, L(0.3) = 0.5 and L(-0.9) = -1; with
    mu = 5, SS and SS' are the sigmoid's formulas of BNN+."""

    def swish(v: float) -> float:
        s = 1 / (1 + math.exp(-5 * v))
        return 2 * s * (1 + 5 * v * (1 - s)) - 1

    def slope(v: float) -> float:
        return (swish(v + 1e-6) - swish(v - 1e-6)) / 2e-6

    w = torch.tensor([0.3, -0.9], dtype=torch.float64, requires_grad=True)
    out = composed_pair(lambda: 0.2)(w, 5.0)
    (out * torch.tensor([2.0, 3.0])).sum().backward()
    assert out.tolist() == pytest.approx([swish(0.5), swish(-1.0)])
    assert w.grad.tolist() == pytest.approx([2 * slope(0.5), 3 * slope(-1.0)], rel=1e-6)
    assert swish(1.0) == pytest.approx(1.0530949, abs=1e-7)  # docs/methods.md 1.4
    assert slope(1.0) == pytest.approx(-0.1949923, abs=1e-6)


@pytest.mark.parametrize("rho", [0.05, 0.4, 0.9])
def test_the_composed_pair_decomposes_as_corollary_1_demands(rho: float) -> None:
    """The integral of dF/B is the proximal quantizer, here L of equation (10): for w > 0 a straight
    line from (0, rho) to (1 - rho, 1). With mu = 2 the slope of SS has its root beyond 1, at
    x0 = 1.1996786, so that B is positive on the whole line."""
    w = torch.linspace(0.0, 1 - rho, 20_001, dtype=torch.float64, requires_grad=True)
    pair = composed_pair(lambda: rho)
    forward = pair(w, 2.0)
    forward.sum().backward()
    assert w.grad is not None
    backward = (w.grad[1:] + w.grad[:-1]) / 2
    integral = (forward.detach().diff() / backward).cumsum(0)
    line = torch.linspace(rho, 1.0, 20_001, dtype=torch.float64)
    torch.testing.assert_close(integral, line[1:] - rho, rtol=1e-6, atol=1e-9)
    mirrored = pair(-w.detach(), 2.0)
    torch.testing.assert_close(mirrored[1:], -forward.detach()[1:])


def test_rho_of_the_composition_grows_along_a_line(make_spec, start) -> None:
    training = start(make_spec("bnn++", "W", params={"rho": 1.01, "mu_end": 5.0}))
    method, latent = training.method, torch.tensor([0.1])
    values = []
    for fraction in (0.0, 0.5, 1.0):
        method.before_step(fraction)
        values.append(float(method.annealed.pair(latent, 5.0)))
    expected = [float(sign_swish(torch.tensor([v]), 5.0)) for v in (0.1 + 0.01, 0.1 + 0.51, 1.0)]
    assert values == pytest.approx(expected)


def test_the_composition_learns_and_ends_binary(make_spec, start, finish) -> None:
    spec = make_spec("bnn++", "B", params={"rho": 0.5}, subset=600, epochs=8)
    training = finish(start(spec))
    training.network.verify()
    assert training.history[-1]["val_accuracy"] > 0.6
