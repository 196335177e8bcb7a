"""Claims about kernels: they give the bits of torch for every layer they take, whatever its shape,
and say which layers they do not take."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from bitfront.trainables.runtime import threads as threading
from bitfront.trainables.runtime.chains import PackedLayer
from bitfront.trainables.runtime.layers import misfit
from bitfront.trainables.runtime.machine import Kernel, has_lookup
from bitfront.trainables.runtime.threads import using
from bitfront.trainables.runtime.thresholds import thresholds
from testbed.binary_nets import made_binary

pytest.importorskip("numba", reason="kernels need Numba")
# Those that this machine can run.
KERNELS = [kernel for kernel in Kernel if kernel is not Kernel.LOOKUP or has_lookup()]
QUIET = settings(
    deadline=None,
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@st.composite
def convolutions(draw):
    """(layer, input) of a convolution with anything that a kernel takes."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 4]))
    inputs = groups * draw(st.sampled_from([8, 9, 12, 16, 30, 64]))
    outputs = groups * draw(st.sampled_from([1, 8, 16, 33, 64, 72]))
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    padding = draw(st.sampled_from([(0, 0), (1, 1), (2, 0), (0, 3)]))
    layer = nn.Conv2d(
        inputs, outputs, kernel, stride, padding, dilation, groups, draw(st.booleans())
    )
    size = [
        d * (k - 1) + 1 + draw(st.integers(0, 6)) for k, d in zip(kernel, dilation, strict=True)
    ]
    x = torch.randn(draw(st.integers(1, 3)), inputs, *size)
    x[torch.rand_like(x) < 0.1] = 0.0
    if draw(st.booleans()):
        x = x.contiguous(memory_format=torch.channels_last)
    elif draw(st.booleans()):
        x = x.repeat_interleave(2, -1)[..., ::2]  # not contiguous
    return layer, x


@QUIET
@given(convolutions(), st.sampled_from(["none", "layer", "channel"]), st.booleans(), st.booleans())
def test_a_convolution_on_bits_gives_the_bits_of_torch(case, scale, shifted, norm):
    layer, x = case
    sizes = {"none": None, "layer": (1,), "channel": (layer.out_channels,)}[scale]
    factor = None if sizes is None else torch.rand(sizes)
    made_binary(layer, factor, shifted, "norm" if norm else "keep")
    assert misfit(layer) is None
    wanted = layer(x)
    for kernel in KERNELS:
        found = PackedLayer(layer, kernel)(x)
        assert torch.equal(found, wanted)
        for layout in (torch.contiguous_format, torch.channels_last):
            assert found.is_contiguous(memory_format=layout) == wanted.is_contiguous(
                memory_format=layout
            )


@QUIET
@given(
    st.sampled_from([8, 21, 64, 100]),
    st.sampled_from([1, 10, 65]),
    st.lists(st.integers(1, 5), max_size=2),
)
def test_a_linear_layer_on_bits_gives_the_bits_of_torch(inputs, outputs, shape):
    layer = made_binary(nn.Linear(inputs, outputs), torch.rand(outputs), shifted=True)
    x = torch.randn(*shape, inputs)
    for kernel in KERNELS:
        assert torch.equal(PackedLayer(layer, kernel)(x), layer(x))


@pytest.mark.parametrize("outputs", [64, 100, 165])
def test_a_layer_without_scale_and_bias_stores_its_sums(outputs):
    layer = made_binary(nn.Linear(64, outputs, bias=False))
    x = torch.randn(9, 64)
    assert torch.equal(PackedLayer(layer)(x), layer(x))


@pytest.mark.parametrize("inputs", [16, 20, 24])
def test_a_convolution_in_one_dimension_gives_the_bits_of_torch(inputs):
    layer = made_binary(nn.Conv1d(inputs, 12, 5, stride=2, padding=2), torch.rand(12))
    x = torch.randn(3, inputs, 31)
    assert torch.equal(PackedLayer(layer)(x), layer(x))


def test_an_image_without_a_batch_and_an_empty_batch_are_taken():
    layer = made_binary(nn.Conv2d(16, 8, 3, padding="same"))
    run = PackedLayer(layer)
    x = torch.randn(16, 5, 5)
    assert torch.equal(run(x), layer(x))
    assert run(torch.empty(0, 16, 5, 5)).shape == (0, 8, 5, 5)


def test_a_layer_whose_sums_the_look_up_kernel_does_not_hold_has_its_bits_counted():
    layer = made_binary(nn.Linear(70_000, 2))
    assert PackedLayer(layer, Kernel.LOOKUP).kernel is Kernel.POPCOUNT
    x = torch.randn(1, 70_000)
    assert torch.equal(PackedLayer(layer)(x), layer(x))


@pytest.mark.parametrize("kernel", KERNELS)
def test_numbers_that_are_none_and_those_without_end_have_the_signs_of_torch(kernel):
    layer = made_binary(nn.Conv2d(32, 16, 3, padding=1), torch.rand(16), shifted=True)
    x = torch.randn(2, 32, 6, 6)
    for value in (torch.nan, -torch.nan, torch.inf, -torch.inf, -0.0):
        x[torch.rand_like(x) < 0.1] = value
    assert torch.equal(PackedLayer(layer, kernel)(x), layer(x))


@pytest.mark.parametrize(
    ("x", "error"),
    [
        (torch.randn(1, 15, 5, 5), RuntimeError),
        (torch.randn(1, 16, 2, 2), RuntimeError),
        (torch.randn(16), RuntimeError),
        (torch.randn(1, 16, 5, 5).double(), TypeError),
        (torch.randn(1, 16, 5, 5, device="meta"), TypeError),
    ],
)
def test_inputs_that_the_layer_does_not_take_reach_no_kernel(x, error):
    run = PackedLayer(made_binary(nn.Conv2d(16, 8, 3)))
    with pytest.raises(error):
        run(x)
    with pytest.raises(RuntimeError, match="shortcut"):
        run(torch.randn(1, 16, 5, 5), torch.randn(1, 8, 4, 4))


@pytest.mark.parametrize("openmp", [True, False])
def test_several_threads_give_the_same_bits_and_several_callers_do_not_disturb_each_other(
    openmp, monkeypatch
):
    from concurrent.futures import ThreadPoolExecutor

    if not openmp:
        monkeypatch.setattr(threading, "_openmp", lambda: None)
    layer = made_binary(nn.Conv2d(32, 64, 3, padding=1), torch.rand(64))
    run = PackedLayer(layer)
    xs = [torch.randn(1, 32, size, size) for size in (17, 20, 23, 17)]
    with using(2):
        assert all(torch.equal(run(x), layer(x)) for x in xs)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(run, xs * 8))
    assert all(torch.equal(y, layer(x)) for x, y in zip(xs * 8, found, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_does_not_wait_for_threads_that_it_does_not_have():
    layer = made_binary(nn.Conv2d(32, 64, 3, padding=1), torch.rand(64))
    # Torch would wait for them where it copies or compares.
    run = PackedLayer(layer)
    x = torch.randn(1, 32, 40, 40).contiguous(memory_format=torch.channels_last)
    with using(2):
        wanted = run(x).numpy()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if (run(x).numpy() == wanted).all() else 1)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("activations", ["keep", "norm", "shift"])
def test_a_threshold_is_the_smallest_float_that_becomes_plus_one(activations):
    layer = made_binary(nn.Conv2d(24, 8, 3), shifted=True, activations=activations)
    found = torch.from_numpy(thresholds(layer)).view(1, -1, 1, 1)
    below = torch.nextafter(found, torch.tensor(-torch.inf))
    assert bool((layer.input_quantizer(found) == 1).all())
    assert bool((layer.input_quantizer(below) == -1).all())


@pytest.mark.parametrize("shift", [torch.inf, -torch.inf])
def test_a_channel_whose_sign_no_number_changes_has_a_threshold_beyond_all(shift):
    layer = made_binary(nn.Linear(8, 8), shifted=True)
    layer.input_quantizer.shift[3] = shift
    largest = torch.finfo(torch.float32).max
    reached = [x >= float(thresholds(layer)[3]) for x in (-largest, largest)]
    assert reached == [shift < 0] * 2
    x = torch.randn(5, 8)
    assert torch.equal(PackedLayer(layer)(x), layer(x))


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"), "padding with reflect"),
        (nn.Conv2d(16, 16, 3, groups=16), "1 inputs per group: torch is faster"),
        (nn.ConvTranspose2d(8, 8, 3), "ConvTranspose2d has no kernel"),
        (nn.Conv3d(8, 8, 3), "Conv3d has no kernel"),
    ],
)
def test_layers_without_a_kernel_are_named_with_the_reason(layer, reason):
    assert misfit(made_binary(layer)) == reason


def test_a_pruned_layer_has_no_kernel():
    layer = made_binary(nn.Linear(8, 8))
    layer.weight[0, 0] = 0
    assert misfit(layer) == "pruned weights"
