"""Claims about the quantizer pairs: the numbers of methods.md 1.1-1.4, and that the fast autograd
functions compute what the formulas say."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainables.quantizers import PAIRS, sign, sign_swish, sign_swish_slope

X0 = 1.1996786402577337  # the root of x tanh x = 1
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def real(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def forward_backward(name: str, w: Tensor, value: float, grad: Tensor) -> tuple[Tensor, Tensor]:
    w = w.clone().requires_grad_()
    out = PAIRS[name](w, value)
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


FORMULAS = {
    "bc": (plain_sign, lambda w, mu: torch.ones_like(w).double()),
    "bnn": (plain_sign, lambda w, mu: (w.abs() <= 1).double()),
    "bnn+": (plain_sign, plain_slope),
    "bnn++": (plain_swish, plain_slope),
}


def test_every_pair_has_its_formulas_here() -> None:
    assert set(FORMULAS) == set(PAIRS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sign_of_both_zeros_is_plus_one(dtype: torch.dtype) -> None:
    w = torch.tensor([0.0, -0.0, -1e-30, 1e-30, -3.0], dtype=dtype)
    assert sign(w).tolist() == [1, 1, -1, 1, -1]
    assert sign(w).dtype == dtype
    for name in ("bc", "bnn", "bnn+"):
        assert PAIRS[name](w, 5.0).tolist() == [1, 1, -1, 1, -1]


def test_sign_leaves_its_input_alone() -> None:
    w = torch.tensor([-0.0, 2.0])
    sign(w)
    assert math.copysign(1, w[0].item()) == -1


@settings(deadline=None)
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=30))
def test_sign_has_two_values_and_never_a_third(values: list[float]) -> None:
    out = sign(torch.tensor(values))
    assert out.tolist() == [1.0 if v >= 0 else -1.0 for v in values]


# --- sign-Swish, methods.md 1.4 and A1 ----------------------------------------------------------


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


@pytest.mark.parametrize("mu", [2.0, 5.0, 30.0])
@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_computes_its_formulas(name: str, mu: float) -> None:
    random = torch.Generator().manual_seed(1)
    w = torch.randn(2_000, generator=random)
    grad = torch.randn(2_000, generator=random)
    out, heard = forward_backward(name, w, mu, grad)
    forward, backward = FORMULAS[name]
    torch.testing.assert_close(out.double(), forward(w, mu), rtol=0, atol=1e-5)
    expected = backward(w, mu) * grad.double()
    torch.testing.assert_close(heard.double(), expected, rtol=0, atol=1e-5 * mu)


@pytest.mark.parametrize("mu", [2.0, 5.0, 30.0])
def test_what_bnn_plus_plus_hears_is_the_derivative_of_its_forward(mu: float) -> None:
    random = torch.Generator().manual_seed(2)
    w = torch.randn(50, dtype=torch.float64, generator=random).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: PAIRS["bnn++"](x, mu), w)


def test_only_bnn_plus_plus_is_soft() -> None:
    w = torch.linspace(-1, 1, 21)
    for name, pair in PAIRS.items():
        assert pair.soft == (not torch.equal(pair(w, 5.0), sign(w))), name


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


@pytest.mark.parametrize("name", ["bnn", "bnn+", "bnn++"])
def test_far_latents_are_plus_minus_one_and_hear_nothing(name: str) -> None:
    w = torch.tensor([-1e30, -50.0, 50.0, 1e30])
    out, heard = forward_backward(name, w, 30.0, torch.ones(4))
    assert out.tolist() == [-1, -1, 1, 1]
    assert heard.tolist() == [0, 0, 0, 0]
