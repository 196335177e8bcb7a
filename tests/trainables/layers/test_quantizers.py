"""Claims about the quantizer pairs: the numbers of docs/methods.md 1.1-1.4, and that the fast
autograd functions compute what the formulas say."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bitfront.trainables.layers.quantizers import (
    PAIRS,
    CyclicActivation,
    pc_pair,
    piecewise_linear,
    sign,
    sign_swish,
    sign_swish_slope,
    triangle_primitive,
    triangle_slope,
    wrapped,
)

X0 = 1.1996786402577337  # the root of x tanh x = 1
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def real(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def forward_backward(name: str, w: Tensor, value: float, grad: Tensor) -> tuple[Tensor, Tensor]:
    w = w.clone().requires_grad_()
    shift = torch.zeros((), dtype=w.dtype) if PAIRS[name].shifted else None
    out = PAIRS[name](w, value, shift)
    out.backward(grad)
    assert w.grad is not None
    return out.detach(), w.grad


# The formulas once more, in float64 and as the paper writes them with the sigmoid, so that they
# share nothing with the code.


def plain_sign(w: Tensor, mu: float) -> Tensor:
    return torch.where(w >= 0, 1.0, -1.0).double()


def plain_swish(w: Tensor, mu: float) -> Tensor:
    s = torch.sigmoid(mu * w.double())
    return 2 * s * (1 + mu * w.double() * (1 - s)) - 1


def plain_slope(w: Tensor, mu: float) -> Tensor:
    z = mu * w.double()
    return mu * (2 - z * torch.tanh(z / 2)) / (2 * torch.cosh(z / 2) ** 2)


def plain_one(w: Tensor, value: float) -> Tensor:
    return torch.ones_like(w).double()


def plain_l(w: Tensor, rho: float) -> Tensor:
    """The special case rho = varrho, the prox of ProxQuant."""
    return plain_sign(w, rho) * (w.double().abs() + rho).clamp(max=1)


def plain_bi_real(w: Tensor, value: float) -> Tensor:
    return (2 - 2 * w.double().abs()).clamp(min=0)


def gain(t: float) -> float:
    return max(1 / t, 1)


def plain_r_bnn(w: Tensor, t: float) -> Tensor:
    return gain(t) * (math.sqrt(2) * t - t * t * w.double().abs()).clamp(min=0)


def plain_poly(w: Tensor, t: float) -> Tensor:
    x = w.double()
    inside = gain(t) * (math.sqrt(2) * t * x - x.sign() * t * t * x * x / 2)
    return torch.where(x.abs() < math.sqrt(2) / t, inside, gain(t) * x.sign())


def plain_tanh(w: Tensor, t: float) -> Tensor:
    return gain(t) * torch.tanh(t * w.double())


def plain_tanh_slope(w: Tensor, t: float) -> Tensor:
    return gain(t) * t / torch.cosh(t * w.double()) ** 2


FORMULAS = {
    "bc": (plain_sign, plain_one),
    "bnn": (plain_sign, lambda w, mu: (w.abs() <= 1).double()),
    "bnn+": (plain_sign, plain_slope),
    "bnn++": (plain_swish, plain_slope),
    "pc": (plain_l, plain_one),
    "bi-real": (plain_sign, plain_bi_real),
    "r-bnn": (plain_sign, plain_r_bnn),
    "poly+": (plain_poly, plain_r_bnn),
    "ede": (plain_sign, plain_tanh_slope),
    "ede+": (plain_tanh, plain_tanh_slope),
    "react": (plain_sign, plain_bi_real),
    "ptb": (lambda w, value: w.double(), plain_one),
}
# What F is the primitive of.
DIFFERENTIABLE = ("bnn++", "poly+", "ede+", "ptb")
HARD = [name for name, pair in PAIRS.items() if not pair.soft]


def test_every_pair_has_its_formulas_here() -> None:
    assert set(FORMULAS) == set(PAIRS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sign_of_both_zeros_is_plus_one(dtype: torch.dtype) -> None:
    w = torch.tensor([0.0, -0.0, -1e-30, 1e-30, -3.0], dtype=dtype)
    assert sign(w).tolist() == [1, 1, -1, 1, -1]
    assert sign(w).dtype == dtype
    for name in HARD:
        out, _ = forward_backward(name, w, 5.0, torch.ones_like(w))
        assert out.tolist() == [1, 1, -1, 1, -1]


def test_sign_leaves_its_input_alone() -> None:
    w = torch.tensor([-0.0, 2.0])
    sign(w)
    assert math.copysign(1, w[0].item()) == -1


@settings(deadline=None)
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=30))
def test_sign_has_two_values_and_never_a_third(values: list[float]) -> None:
    out = sign(torch.tensor(values))
    assert out.tolist() == [1.0 if v >= 0 else -1.0 for v in values]


# --- sign-Swish, docs/methods.md 1.4 and A1 -------------------------------------------------------


@pytest.mark.parametrize("mu", [0.5, 2.0, 5.0, 30.0, 1000.0])
def test_sign_swish_has_its_maximum_1_1996786_at_2_x0_over_mu(mu: float) -> None:
    peak = real(2 * X0 / mu)
    assert sign_swish(peak, mu).item() == pytest.approx(1.1996786, abs=1e-6)
    assert sign_swish_slope(peak, mu).item() == pytest.approx(0.0, abs=1e-6 * mu)
    assert sign_swish_slope(0.99 * peak, mu).item() > 0
    assert sign_swish_slope(1.01 * peak, mu).item() < 0
    everywhere = torch.linspace(-20 / mu, 20 / mu, 40_001, dtype=torch.float64)
    best = sign_swish(everywhere, mu).max().item()
    assert best == pytest.approx(1.1996786, abs=1e-6)
    assert best <= X0 + 1e-12


def test_the_maximum_is_where_the_table_says() -> None:
    assert pytest.approx(0.4798715, abs=1e-6) == 2 * X0 / 5
    assert pytest.approx(0.0799786, abs=1e-6) == 2 * X0 / 30
    assert X0 * math.tanh(X0) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("mu", [0.5, 5.0, 30.0])
def test_the_slope_at_zero_is_mu(mu: float) -> None:
    assert sign_swish(real(0.0), mu).item() == 0.0
    assert sign_swish_slope(real(0.0), mu).item() == pytest.approx(mu, abs=1e-12)


@pytest.mark.parametrize("mu", [0.5, 5.0, 30.0])
def test_sign_swish_is_odd_and_its_slope_even(mu: float) -> None:
    w = torch.randn(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(sign_swish(-w, mu), -sign_swish(w, mu))
    torch.testing.assert_close(sign_swish_slope(-w, mu), sign_swish_slope(w, mu))


@pytest.mark.parametrize(
    ("function", "mu", "w", "expected"),
    [
        (sign_swish, 5, 0.1, 0.4799224),
        (sign_swish, 5, 1.0, 1.0530949),
        (sign_swish, 5, 0.4, 1.1815685),
        (sign_swish, 30, 0.1, 1.1762082),
        (sign_swish, 30, 1.0, 1.0),
        (sign_swish_slope, 5, 1.0, -0.1949923),
        (sign_swish_slope, 5, 0.4, 0.5006217),
    ],
)
def test_sign_swish_has_the_tabulated_values(function, mu, w, expected) -> None:
    assert function(real(w), mu).item() == pytest.approx(expected, abs=1e-6)
    both = forward_backward("bnn++", real(w), mu, real(1.0))
    assert both[function is sign_swish_slope].item() == pytest.approx(expected, abs=1e-6)


@settings(deadline=None)
@given(
    w=st.lists(st.floats(-4, 4), min_size=1, max_size=20),
    mu=st.floats(0.1, 100),
)
def test_the_sigmoid_form_equals_the_tanh_form(w: list[float], mu: float) -> None:
    x = real(*w)
    out, slope = forward_backward("bnn++", x, mu, torch.ones_like(x))
    torch.testing.assert_close(out, sign_swish(x, mu), rtol=0, atol=1e-11 * (1 + mu))
    torch.testing.assert_close(slope, sign_swish_slope(x, mu), rtol=0, atol=1e-11 * (1 + mu) ** 2)


# --- the pairs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"), [("bc", 0.33), ("bnn", 0.33), ("bnn+", 0.3649565), ("bnn++", 0.3558668)]
)
def test_one_step_on_the_toy_loss(name: str, expected: float) -> None:
    latent = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([latent], lr=0.1)
    (0.5 * (PAIRS[name](latent, 5.0) - 0.3) ** 2).backward()
    optimizer.step()
    assert latent.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("mu", [0.01, 0.5, 2.0, 5.0, 30.0])
@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_computes_its_formulas(name: str, mu: float) -> None:
    random = torch.Generator().manual_seed(1)
    w = torch.randn(2_000, generator=random)
    grad = torch.randn(2_000, generator=random)
    out, heard = forward_backward(name, w, mu, grad)
    forward, backward = FORMULAS[name]
    torch.testing.assert_close(out.double(), forward(w, mu), rtol=1e-5, atol=2e-5)
    expected = backward(w, mu) * grad.double()
    torch.testing.assert_close(heard.double(), expected, rtol=0, atol=1e-5 * max(1, mu))


@pytest.mark.parametrize("value", [0.05, 0.5, 2.0, 5.0, 30.0])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_what_a_differentiable_pair_hears_is_the_derivative_of_its_forward(name, value) -> None:
    random = torch.Generator().manual_seed(2)
    w = torch.randn(50, dtype=torch.float64, generator=random).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: PAIRS[name](x, value), w)


def test_a_pair_is_soft_exactly_when_its_forward_is_not_the_sign() -> None:
    w = torch.linspace(-1, 1, 21)
    for name, pair in PAIRS.items():
        out, _ = forward_backward(name, w, 0.5, torch.ones_like(w))
        assert pair.soft == (not torch.equal(out, sign(w))), name


@pytest.mark.parametrize(
    ("name", "value", "away"),
    [("pc", 10.0, 0.0), ("bnn++", 30.0, 0.7), ("poly+", 10.0, 0.15), ("ede+", 10.0, 0.9)],
)
def test_an_annealed_forward_ends_at_the_sign(name: str, value: float, away: float) -> None:
    """Exactly for pc, away from the origin for the others."""
    w = torch.tensor([-2.0, -1.0, -away - 1e-3, away + 1e-3, 1.0, 2.0])
    torch.testing.assert_close(PAIRS[name](w, value), sign(w), atol=1e-6, rtol=0)


# --- L, docs/methods.md 1.3 and A2 ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("rho", "varrho", "expected"),
    [
        (0.2, 0.2, [0.30, 0.45, 0.70, 0.95]),
        (0.3, 0.0, [0.1428571, 0.3571429, 0.7142857, 1.0]),
        (0.0, 0.3, [0.37, 0.475, 0.65, 0.825]),
    ],
)
def test_l_has_the_tabulated_values(rho: float, varrho: float, expected: list[float]) -> None:
    w = real(0.10, 0.25, 0.50, 0.75)
    assert piecewise_linear(w, rho, varrho).tolist() == pytest.approx(expected, abs=1e-6)
    assert piecewise_linear(-w, rho, varrho).tolist() == pytest.approx(
        [-e for e in expected], abs=1e-6
    )


@settings(deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=20), st.floats(0, 3))
def test_l_with_equal_shifts_is_the_prox_of_prox_quant(values: list[float], rho: float) -> None:
    w = real(*values)
    torch.testing.assert_close(piecewise_linear(w, rho, rho), plain_l(w, rho))
    if rho >= 1:
        assert torch.equal(piecewise_linear(w, rho, rho), sign(w))


@pytest.mark.parametrize("varrho", [0.0, 0.3, 2.0])
def test_special_cases_of_l(varrho: float) -> None:
    w = torch.linspace(-1, 1, 41, dtype=torch.float64)
    assert torch.equal(piecewise_linear(w, 0.0, 0.0), w)
    share = min(1.0, varrho)
    relaxed = (1 - share) * w + share * sign(w)
    torch.testing.assert_close(piecewise_linear(w, 0.0, varrho), relaxed)
    assert torch.equal(piecewise_linear(w, 1.0, varrho), sign(w))
    assert piecewise_linear(real(0.0), 0.2, varrho).item() == share
    assert piecewise_linear(real(-5.0, 5.0), 0.2, varrho).tolist() == [-1, 1]


def test_pc_hears_everything_whatever_the_slope_of_l() -> None:
    w = real(-3.0, -0.4, 0.0, 0.4, 3.0).requires_grad_()
    pc_pair(0.0)(w, 0.5).backward(real(1, 2, 3, 4, 5))
    assert w.grad.tolist() == [1, 2, 3, 4, 5]


# --- Bi-Real, R-BNN, EDE: docs/methods.md 1.5 - 1.8 and A6 ----------------------------------------


def test_bi_real_at_one_half() -> None:
    assert triangle_primitive(real(0.5), 2.0, 1.0).item() == 0.75
    assert triangle_slope(real(0.5), 2.0, 1.0).item() == 1.0
    assert triangle_primitive(real(-0.5, 1.0, 7.0), 2.0, 1.0).tolist() == [-0.75, 1, 1]


def test_r_bnn_and_poly_plus_at_the_tabulated_points() -> None:
    w = real(0.0, 1.0, 2.0, 3.0)
    out, slope = forward_backward("poly+", w, 0.5, torch.ones_like(w))
    assert slope.tolist() == pytest.approx([1.414214, 0.914214, 0.414214, 0], abs=1e-6)
    assert out.tolist() == pytest.approx([0, 1.164214, 1.828427, 2], abs=1e-6)
    _, same = forward_backward("r-bnn", w, 0.5, torch.ones_like(w))
    assert torch.equal(same, slope)


@pytest.mark.parametrize("t", [0.01, 0.5, 1.0, 10.0])
def test_poly_plus_reaches_k_at_the_edge(t: float) -> None:
    edge = real(math.sqrt(2) / t)
    assert PAIRS["poly+"](edge, t).item() == pytest.approx(gain(t), rel=1e-9)
    _, slope = forward_backward("r-bnn", real(0.0), t, real(1.0))
    assert slope.item() == pytest.approx(math.sqrt(2) * max(1, t))


def test_ede_at_the_tabulated_points() -> None:
    w = real(0.0, 1.0, 2.0)
    out, slope = forward_backward("ede+", w, 0.5, torch.ones_like(w))
    assert slope.tolist() == pytest.approx([1, 0.786448, 0.419974], abs=1e-6)
    assert out[1].item() == pytest.approx(0.924234, abs=1e-6)
    assert PAIRS["ede+"](real(0.5), 0.1).item() == pytest.approx(0.49958, abs=1e-5)


def test_a_shift_moves_the_sign_and_hears_the_negative_sum() -> None:
    w = real(0.2, -0.2, 0.9, 3.0).view(2, 2).requires_grad_()
    shift = real(0.3, -1.0).view(2, 1).requires_grad_()
    out = PAIRS["react"](w, 1.0, shift)
    assert out.tolist() == [[-1, -1], [1, 1]]
    grad = real(1, 2, 3, 4).view(2, 2)
    out.backward(grad)
    slope = (2 - 2 * (w - shift).abs()).clamp(min=0).detach()
    torch.testing.assert_close(w.grad, grad * slope)
    torch.testing.assert_close(shift.grad, -(grad * slope).sum(1, keepdim=True))


# --- accumulators, docs/methods.md 1.9 and A5 -----------------------------------------------------


def cyclic(*z: float, bits: int = 8, slope: float = 2.0) -> list[float]:
    return CyclicActivation.apply(real(*z), bits, slope).tolist()


def test_wrapping_and_the_cyclic_activation_at_the_tabulated_points() -> None:
    assert wrapped(real(128, 200, 300, -128, -129, 127), 8).tolist() == [
        -128,
        -56,
        44,
        -128,
        127,
        127,
    ]
    found = cyclic(64, 85, 86, 100, 127, 128, -86, 300)
    assert found == [64, 85, 84, 56, 2, 0, -84, 44]


@settings(deadline=None)
@given(st.integers(-5000, 5000), st.sampled_from([4, 6, 8]), st.sampled_from([1.0, 2.0, 4.0]))
def test_an_overflow_changes_nothing(z: int, bits: int, slope: float) -> None:
    period = 2**bits
    assert cyclic(z, bits=bits, slope=slope) == cyclic(z + 3 * period, bits=bits, slope=slope)
    near = cyclic(z - 1e-6, z + 1e-6, bits=bits, slope=slope)
    assert near[0] == pytest.approx(near[1], abs=1e-4)


def test_the_slope_of_the_cyclic_activation_is_1_inside_and_minus_k_outside() -> None:
    z = real(0.0, 85.0, -85.0, 86.0, -86.0, 127.0, 130.0, 170.0, 172.0, 256.0).requires_grad_()
    CyclicActivation.apply(z, 8, 2.0).backward(torch.ones_like(z))
    assert z.grad.tolist() == [1, 1, 1, -2, -2, -2, -2, -2, 1, 1]
    w = torch.linspace(-300, 300, 97, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: CyclicActivation.apply(x, 8, 2.0), w)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
def test_the_interval_of_bnn_is_closed(dtype: torch.dtype) -> None:
    above = torch.nextafter(torch.ones((), dtype=dtype), torch.full((), 2.0, dtype=dtype)).item()
    below = torch.nextafter(torch.ones((), dtype=dtype), torch.zeros((), dtype=dtype)).item()
    far = above + 4 * (above - 1)
    w = torch.tensor([1.0, -1.0, below, -below, 0.0, far, -far, 3.0, -3.0], dtype=dtype)
    _, heard = forward_backward("bnn", w, 1.0, torch.ones_like(w))
    assert heard.tolist() == [1, 1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_keeps_dtype_and_shape(name: str, dtype: torch.dtype) -> None:
    w = torch.linspace(-2, 2, 24, dtype=dtype).view(2, 3, 4)
    out, heard = forward_backward(name, w, 5.0, torch.ones_like(w))
    assert (out.dtype, heard.dtype) == (dtype, dtype)
    assert out.shape == heard.shape == w.shape


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_leaves_its_input_alone(name: str) -> None:
    w = torch.linspace(-2, 2, 9)
    forward_backward(name, w, 5.0, torch.ones(9))
    assert torch.equal(w, torch.linspace(-2, 2, 9))


@pytest.mark.parametrize("name", [n for n in PAIRS if n not in ("bc", "pc", "ptb")])
def test_far_latents_are_plus_minus_one_and_hear_nothing(name: str) -> None:
    w = torch.tensor([-1e30, -50.0, 50.0, 1e30])
    out, heard = forward_backward(name, w, 30.0, torch.ones(4))
    assert out.tolist() == [-1, -1, 1, 1]
    assert heard.tolist() == [0, 0, 0, 0]
