"""Claims about pruning: how many weights each layer keeps, that exactly those are kept, what that
costs, and what edge-popup learns (docs/methods.md 5)."""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bitfront.spaces.costs import costs_of
from bitfront.trainables import packed
from bitfront.trainables.cost import CostTable, cost_table, task_cost_table
from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.pruning import (
    as_bitmap,
    block_cost,
    check_counts,
    counts,
    gas_counts,
    mask_bytes,
    shares,
)
from bitfront.trainables.layers.sparse import (
    Popped,
    RandomSubnetwork,
    SparseWeight,
    draw_scores,
    top_k,
)
from bitfront.trainables.layers.verify import NotBinaryError
from bitfront.trainables.methods import METHODS, build_method
from bitfront.trainables.methods.pruning import Pruned
from bitfront.trainables.models import build_model
from bitfront.trainables.task import TrialSpec

pytestmark = pytest.mark.slow

PRUNED = [name for name in METHODS if issubclass(METHODS.get(name), Pruned)]
RUNS = [(name, level) for name in PRUNED for level in METHODS.get(name).levels if level != "F"]
NARROW = {"name": "rn-narrow", "width": 8, "stages": 2, "affine": False, "lbn": True}


def rn34(**params: object) -> tuple[CostTable, str]:
    table = cost_table("rn34", dict(params), (3, 32, 32), 10, "all")
    return table, "W" * len(table.plan_layers)


# --- how many -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.0, (100, 227.5, 228)), (0.5, (39.19, 123.97, 393)), (1.0, (5, 50, 500))],
)
def test_the_toy_table_of_adaptive_pruning(p: float, expected: tuple[float, ...]) -> None:
    assert shares((100, 1000, 10000), 0.95, p) == pytest.approx(expected, abs=0.005)


def test_resnet34_keeps_the_published_counts() -> None:
    table, plan = rn34(affine=False)
    assert len(plan) == 37
    few, even = (build_method("edge-popup", {"p": p}).kept(table.sizes(plan)) for p in (0.1, 1.0))
    body, widest = "stages.0.0.first.conv", "stages.3.2.second.conv"
    assert (few["stem.conv"], few[body], few["classifier"]) == (1728, 4832, 3966)
    # Five equal layers share what is left; the last one has 7325 or 7326 as sums are rounded.
    assert few[widest] in (7325, 7326)
    assert [even[n] for n in ("stem.conv", body, "classifier")] == [18, 369, 52]
    assert even[widest] == pytest.approx(23596, abs=3)
    for kept in (few, even):
        assert 212_650 <= sum(kept.values()) <= 212_651 + 37


layer_sizes = st.lists(st.integers(1, 5000), min_size=1, max_size=30)


@settings(max_examples=200, deadline=None)
@given(layer_sizes, st.floats(0, 0.999), st.floats(0, 1))
def test_counts_stay_within_layers_and_near_the_budget(sizes, rate, p) -> None:
    kept = counts(sizes, rate, p)
    exact = shares(sizes, rate, p)
    assert all(0 <= k <= n for k, n in zip(kept, sizes, strict=True))
    assert all(m - 1e-5 <= k < m + 1.001 for k, m in zip(kept, exact, strict=True))
    target = (1 - rate) * sum(sizes)
    assert target - len(sizes) - 1 <= sum(kept) <= target + len(sizes) + 1


@settings(max_examples=100, deadline=None)
@given(layer_sizes, st.floats(0, 1))
def test_a_rate_of_0_prunes_nothing(sizes, p) -> None:
    assert counts(sizes, 0.0, p) == sizes


def _ways(sizes, total):
    ranges = [range(1, n + 1) for n in sizes]
    return [m for m in itertools.product(*ranges) if sum(m) == total]


def test_the_fixed_rate_has_the_most_subnetworks() -> None:
    """Theorem A.1: prod C(n_i, m_i) is greatest where all layers keep the same share."""
    sizes = (6, 10, 20)
    best = max(_ways(sizes, 12), key=lambda m: math.prod(map(math.comb, sizes, m)))
    assert best == (2, 3, 7)
    for (mj, nj), (mk, nk) in itertools.combinations(zip(best, sizes, strict=True), 2):
        assert abs(mj / nj - mk / nk) < 1 / nj + 1 / nk
    rate = 1 - 12 / 36
    assert all(abs(m - b) <= 1 for m, b in zip(shares(sizes, rate, 1.0), best, strict=True))


@pytest.mark.parametrize(
    ("sizes", "best"), [((6, 10, 20), [(4, 4, 4)]), ((3, 10, 20), [(3, 4, 5), (3, 5, 4)])]
)
def test_the_fixed_number_has_the_most_paths(sizes, best) -> None:
    """Theorem A.2: prod m_i is greatest where all layers keep the same number, as far as they
    have it."""
    ways = _ways(sizes, 12)
    most = max(math.prod(m) for m in ways)
    assert [m for m in ways if math.prod(m) == most] == best
    found = shares(sizes, 1 - 12 / sum(sizes), 0.0)
    assert any(all(abs(m - b) < 1 for m, b in zip(found, each, strict=True)) for each in best)


def test_ideal_gas_quotas_meet_the_rate_and_spare_small_layers() -> None:
    sizes = (100, 1000, 10000)
    kept = gas_counts(sizes, 0.95)
    assert sum(kept) == pytest.approx(0.05 * sum(sizes), abs=3)
    density = [k / n for k, n in zip(kept, sizes, strict=True)]
    assert density == sorted(density, reverse=True)
    assert density[0] > 0.5


def test_a_thousand_layers_are_settled_within_10_ms() -> None:
    sizes = [1000 + 37 * i for i in range(1000)]
    best = min(_timed(sizes) for _ in range(5))
    assert best < 0.010


def _timed(sizes) -> float:
    started = time.process_time()
    counts(sizes, 0.99, 0.1)
    return time.process_time() - started


def test_a_layer_left_with_nothing_is_an_error() -> None:
    with pytest.raises(UserError, match=r"rate 0\.9 leaves nothing of layer b and 1 more"):
        check_counts({"a": 1, "b": 0, "c": 0}, "rate 0.9")
    method = build_method("edge-popup", {"rate": 0.9999, "p": 0.0})
    with pytest.raises(UserError, match="leaves nothing of layer"):
        method.kept({"a": 100, "b": 100, "c": 100})


@pytest.mark.parametrize("name", PRUNED)
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_a_rate_outside_0_to_1_is_refused(name: str, rate: float) -> None:
    with pytest.raises(UserError, match=rf"{name.replace('+', '[+]')}\.rate: .* is outside 0"):
        build_method(name, {"rate": rate})


@pytest.mark.parametrize("p", [-0.01, 1.01])
def test_an_exponent_outside_0_to_1_is_refused(p: float) -> None:
    with pytest.raises(UserError, match=r"edge-popup\.p: .* is outside 0\.\.1"):
        build_method("edge-popup", {"p": p})


# --- masks --------------------------------------------------------------------------------------


def test_the_mask_of_ten_scores() -> None:
    scores = torch.tensor([0.1, 0.9, 0.3, 0.05, 0.2, 0.7, 0.02, 0.4, 0.6, 0.15])
    assert top_k(scores, 3).int().tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 1, 0]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=40), st.data())
def test_ties_change_nothing_about_the_count(values, data) -> None:
    kept = data.draw(st.integers(0, len(values)))
    found = top_k(torch.tensor(values), kept)
    assert int(found.sum()) == kept
    inside = [v for v, m in zip(values, found.tolist(), strict=True) if m]
    outside = [v for v, m in zip(values, found.tolist(), strict=True) if not m]
    assert not inside or not outside or min(inside) >= max(outside)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_ties_in_any_layout(layout) -> None:
    values = torch.zeros(4, 3, 2, 2).contiguous(memory_format=layout)
    assert top_k(values, 7).sum() == 7


def made(shape=(6, 5), kept=9, magnitude="binary", seed=0):
    torch.manual_seed(seed)
    weight = torch.randn(shape)
    frozen = RandomSubnetwork(weight, magnitude)
    frozen.set_kept(kept)
    scores = torch.empty(shape)
    draw_scores(scores, 0.01)
    return frozen, scores.requires_grad_()


def test_scores_hear_the_gradient_of_the_mask_taken_as_the_identity_of_their_magnitude() -> None:
    frozen, scores = made()
    grad = torch.randn(6, 5)
    frozen(scores).backward(grad)
    signs = torch.where(scores >= 0, 1.0, -1.0)
    assert torch.equal(scores.grad, grad * frozen.frozen * signs)
    # The same by autograd, of w |s| with the mask as a constant factor's stand-in.
    again = scores.detach().clone().requires_grad_()
    (frozen.frozen * again.abs()).backward(grad)
    torch.testing.assert_close(scores.grad, again.grad)


def test_masks_are_made_once_while_scores_stand_still(monkeypatch) -> None:
    from bitfront.trainables.layers import sparse

    frozen, scores = made()
    calls = []
    original = sparse.top_k
    monkeypatch.setattr(sparse, "top_k", lambda *a: calls.append(1) or original(*a))
    first = frozen(scores).detach().clone()
    for _ in range(10):
        frozen(scores)
    assert len(calls) == 1
    with torch.no_grad():
        scores.neg_().mul_(torch.rand(6, 5))
    second = frozen(scores).detach()
    assert len(calls) == 2
    assert not torch.equal(first, second)
    frozen.popped = Popped(cached=False)
    frozen(scores)
    frozen(scores)
    assert len(calls) == 4


def test_a_fused_step_makes_masks_anew(make_spec, start) -> None:
    """Fused optimizers change tensors without counting versions."""
    spec = make_spec("edge-popup", "W", params={"rate": 0.8}, optimizer={"lr": 0.1})
    training = start(spec)
    training.epoch()
    for layer in training.network.binary:
        expected = layer.quantizer.frozen * top_k(layer.latent.abs(), layer.kept)
        assert torch.equal(layer.module.weight, expected)


def test_a_positive_factor_of_the_scores_changes_nothing(make_spec, start, finish) -> None:
    spec = make_spec("edge-popup", "W", params={"rate": 0.9}, model=NARROW, binarize="all")
    training = finish(start(spec))
    x = training.validation.x
    training.model.eval()
    before = training.model(x)
    with torch.no_grad():
        for factor, layer in enumerate(training.network.binary, start=2):
            layer.latent.mul_(factor)
    assert torch.equal(training.model(x), before)


def test_first_scores_and_signs() -> None:
    frozen, scores = made((400, 50), 100)
    assert set(frozen.frozen.unique().tolist()) == {-1.0, 1.0}
    assert abs(float(frozen.frozen.mean())) < 0.03
    assert float(scores.detach().abs().max()) <= 0.01
    assert float(scores.detach().std()) == pytest.approx(0.01 / math.sqrt(3), rel=0.02)
    kaiming = torch.empty(400, 50)
    draw_scores(kaiming, None)
    assert float(kaiming.abs().max()) == pytest.approx(1 / math.sqrt(50), rel=0.01)


@pytest.mark.parametrize(("fan", "factor"), [("plain", 1.0), ("kept", 0.25), ("pruned", 0.75)])
def test_signed_kaiming_constants(fan: str, factor: float) -> None:
    frozen, _ = made((8, 20), 40, fan)
    expected = math.sqrt(2 / (20 * factor))
    torch.testing.assert_close(frozen.frozen.abs(), torch.full((8, 20), expected))
    whole, _ = made((8, 20), 160, fan)
    torch.testing.assert_close(whole.frozen.abs(), torch.full((8, 20), math.sqrt(2 / 20)))


def test_binary_weights_make_logits_16_times_as_large_at_a_fan_of_512() -> None:
    constant, _ = made((10, 512), 5120, "plain")
    binary, _ = made((10, 512), 5120, "binary")
    ratio = binary.frozen.abs()[0, 0] / constant.frozen.abs()[0, 0]
    assert float(ratio) == pytest.approx(16)


def test_with_lbn_the_scale_of_the_classifier_makes_no_difference() -> None:
    torch.manual_seed(0)
    features = torch.randn(32, 40, dtype=torch.float64)
    classifier = nn.Linear(40, 10, bias=False).double()
    y = torch.randint(10, (32,))
    found = {}
    for lbn, factor in itertools.product((True, False), (1.0, 16.0)):
        norm = nn.BatchNorm1d(10, eps=1e-12, affine=False).double() if lbn else nn.Identity()
        x = features.clone().requires_grad_()
        logits = norm(nn.functional.linear(x, factor * classifier.weight))
        nn.functional.cross_entropy(logits, y).backward()
        found[lbn, factor] = x.grad
    torch.testing.assert_close(found[True, 1.0], found[True, 16.0], atol=1e-12, rtol=1e-9)
    assert found[False, 16.0].norm() > 5 * found[False, 1.0].norm()


def test_replacing_weights_keeps_their_number() -> None:
    torch.manual_seed(0)
    latent = torch.randn(20, 30)
    sparse = SparseWeight(latent, binary=False)
    sparse.set_kept(60)
    sparse.draw_mask()
    before = sparse.mask.clone()
    smallest = latent.abs()[before].sort().values[:20]
    sparse.drop_and_grow(latent, 20, 20)
    assert sparse.mask.sum() == 60
    gone, come = before & ~sparse.mask, ~before & sparse.mask
    assert gone.sum() == come.sum() == 20
    torch.testing.assert_close(latent.abs()[gone].sort().values, smallest)
    assert (latent[come] != 0).all()
    sparse.drop_and_grow(latent, 30, 10)
    assert sparse.mask.sum() == 40


# --- conformance --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "level"), RUNS)
@pytest.mark.parametrize("model", [{"name": "mlp", "depth": 2, "width": 24}, NARROW])
def test_a_pruned_layer_holds_exactly_the_promised_weights(
    make_spec, start, finish, tmp_path: Path, name: str, level: str, model: dict
) -> None:
    spec = make_spec(name, level, params={"rate": 0.9}, model=model, binarize="all")
    training = finish(start(spec))
    training.network.verify()
    training.model.eval()
    promised = training.method.kept(
        {layer.name: layer.latent.numel() for layer in training.network.binary}
    )
    for layer in training.network.binary:
        weight = layer.module.weight.detach()
        assert int(weight.count_nonzero()) == promised[layer.name] == layer.kept
        assert layer.kept < weight.numel()
        if level == "W":
            assert weight.abs().unique().numel() == 2
            assert {-1.0, 0.0, 1.0} >= set((weight / weight.abs().max()).unique().tolist())
    path = tmp_path / "packed.safetensors"
    size = packed.save(training.network, spec, path, {})
    assert size == costs_of(spec)["bytes"]
    with torch.no_grad():
        x = training.validation.x
        assert torch.equal(packed.load(path)[0](x), training.model(x))


@pytest.mark.parametrize("init", ["binary", "kaiming"])
@pytest.mark.parametrize("wrong", ["lost", "other value", "one more"])
def test_one_wrong_weight_of_a_pruned_layer_is_found(make_spec, start, init, wrong) -> None:
    from torch.nn.utils import parametrize

    training = start(make_spec("edge-popup", "W", params={"rate": 0.8, "init": init}))
    training.network.verify()
    layer = training.network.binary[0]
    weight = layer.module.weight.detach().clone()
    place = tuple((weight == 0 if wrong == "one more" else weight != 0).nonzero()[0])
    value = {"lost": 0.0, "other value": 0.3, "one more": float(weight.abs().max())}[wrong]
    frozen = layer.quantizer
    weight[place] = value
    frozen.forward = lambda scores: weight
    assert parametrize.is_parametrized(layer.module)
    with pytest.raises(NotBinaryError, match=r"layer layers\.1 (holds|is not binary)"):
        training.network.verify()


def test_only_scores_are_trained(make_spec, start) -> None:
    spec = make_spec("edge-popup", "W", model=NARROW, binarize="all", params={"rate": 0.8})
    training = start(spec)
    names = [n for n, p in training.model.named_parameters() if p.requires_grad]
    assert all(n.endswith("parametrizations.weight.original") for n in names)
    frozen = [layer.quantizer.frozen.clone() for layer in training.network.binary]
    training.epoch()
    pairs = zip(frozen, training.network.binary, strict=True)
    assert all(torch.equal(f, layer.quantizer.frozen) for f, layer in pairs)
    assert training.history[-1]["mask_change"] > 0


def test_hydra_freezes_what_it_does_not_train(make_spec, start) -> None:
    spec = make_spec("hydra", "S", params={"rate": 0.8}, epochs=3)
    training = start(spec)
    layer = training.network.binary[0]
    training.epoch()
    dense = layer.latent.detach().clone()
    assert (training.model.eval().get_submodule(layer.name).weight != 0).all()
    training.epoch()
    assert torch.equal(layer.latent, dense)
    scores = layer.quantizer.scores.detach().clone()
    training.epoch()
    assert torch.equal(layer.quantizer.scores, scores)
    assert torch.equal(layer.quantizer.mask, top_k(scores.abs(), layer.kept))
    assert not torch.equal(layer.latent[layer.quantizer.mask], dense[layer.quantizer.mask])
    rates = [phase.rate for phase in training.phases]
    assert rates == [1.0, 1.0, 0.1]


def test_flyingbird_plus_changes_sparsity_in_the_middle_alone() -> None:
    method: Any = build_method("flyingbird+", {})
    rising = [{"val_loss": 1.0 + i, "train_loss": 1.0} for i in range(5)]
    method.after_epoch(rising)
    assert method._change(1000, 900, 100, 0.4) == -100
    assert method._change(1000, 900, 100, 0.6) == 50 - 40
    assert method._change(1000, 900, 100, 0.95) == -100
    falling = [{"val_loss": 5.0 - i, "train_loss": 1.0} for i in range(5)]
    method.after_epoch(falling)
    assert method._change(1000, 900, 100, 0.6) == 0
    gaps = [
        {"val_loss": 5.0 - i, "train_loss": 1.0, "train_robust_pgd": 0.1 * i, "val_robust_pgd20": 0}
        for i in range(5)
    ]
    method.after_epoch(gaps)
    assert method._change(1000, 900, 100, 0.6) == -40


def test_bcs_replaces_connections_that_fell_to_0() -> None:
    from bitfront.trainables.layers.sparse import SignedConnections

    torch.manual_seed(0)
    theta = torch.rand(10, 10) + 0.1
    connections = SignedConnections(torch.randn(10, 10), binary=False)
    connections.set_kept(30)
    connections.draw_mask()
    active = connections.mask.clone()
    dying = active.flatten().nonzero().flatten()[:7]
    theta.view(-1)[dying] = -0.01
    connections.rewire(theta)
    assert connections.mask.sum() == 30
    weight = connections(theta)
    assert int(weight.count_nonzero()) == 30
    assert torch.equal(weight[connections.mask].sign(), connections.signs[connections.mask])


# --- models -------------------------------------------------------------------------------------


def test_the_resnet34_of_robust_pruning_has_the_published_weights() -> None:
    assert rn34(affine=False)[0].parameters == 21_265_088
    table = cost_table("rn34", {"affine": False}, (3, 32, 32), 100, "all")
    assert table.parameters == 21_311_168


@pytest.mark.parametrize(
    ("size", "weights", "parameters"), [("p0.1", 199_198, 201_078), ("p1", 214_652, 216_360)]
)
def test_the_small_dense_networks_have_the_published_sizes(size, weights, parameters) -> None:
    table, _ = rn34(size=size)
    assert table.parameters == parameters
    assert sum(layer.weights for layer in table.layers) == weights


def test_lbn_is_a_norm_of_the_logits_without_parameters() -> None:
    torch.manual_seed(0)
    model = build_model("rn-narrow", {"width": 8, "lbn": True}, (1, 8, 8), 10)
    assert model.last_norm.weight is None
    assert model.stem.norm.weight is not None
    logits = model(torch.randn(64, 1, 8, 8))
    torch.testing.assert_close(logits.mean(0), torch.zeros(10), atol=1e-5, rtol=0)
    torch.testing.assert_close(logits.var(0, correction=0), torch.ones(10), atol=0.02, rtol=0)


# --- costs --------------------------------------------------------------------------------------


def test_table_6() -> None:
    weights, elements = 3 * 3 * 128 * 128, 16 * 16 * 128
    macs = 16 * 16 * weights
    full, binary = (block_cost(macs, elements, weights, 0.01, b) for b in (False, True))
    assert binary.training_forward / full.training_forward == pytest.approx(0.661575, abs=1e-6)
    assert binary.evaluation_forward / full.evaluation_forward == pytest.approx(0.573964, abs=1e-6)
    assert binary.backward / full.backward == pytest.approx(0.706486, abs=1e-6)


def test_a_mask_takes_a_bit_a_weight_or_an_index_a_kept_one() -> None:
    """docs/methods.md 5.11."""
    both = mask_bytes(21_265_088, 21_265_088) + 212_651 / 8
    assert both == pytest.approx(2.68e6, rel=0.01)
    assert not as_bitmap(21_265_088, 212_651)
    assert mask_bytes(21_265_088, 212_651) == 4 * 212_651
    assert as_bitmap(800, 100)
    assert mask_bytes(800, 100) == 100


def test_flops_scale_with_the_kept_share(make_spec) -> None:
    def costs(rate: float, level: str, method: str = "flyingbird") -> dict[str, float]:
        params = {"rate": rate, "p": 1.0, "layers": "power"}
        if method == "edge-popup":
            del params["layers"]
        return costs_of(make_spec(method, level, params=params, model=NARROW, binarize="all"))

    spec = make_spec("fp", "F", model=NARROW, binarize="all")
    whole = costs_of(spec)
    table = task_cost_table(spec.task)
    macs = sum(layer.macs for layer in table.layers)
    elements = sum(layer.elements for layer in table.layers)
    assert whole["flops"] == macs + 3 * elements
    assert costs(0.0, "S")["flops"] == whole["flops"]
    assert costs(0.5, "S")["flops"] == pytest.approx(macs / 2 + 3 * elements, rel=0.01)
    assert costs(0.5, "W")["flops"] == pytest.approx(macs / 4 + 3 * elements, rel=0.01)
    assert costs(0.5, "W", "edge-popup") == costs(0.5, "W")
    assert costs(0.5, "S")["ops64"] == pytest.approx(macs / 2, rel=0.01)


def test_pretraining_of_random_weights_is_refused(make_spec, start) -> None:
    with pytest.raises(UserError, match="edge-popup prunes random weights"):
        start(make_spec("edge-popup", "W", pretrain={"epochs": 1}))


def test_full_precision_plans_of_adversarial_methods_keep_their_attack(make_spec) -> None:
    at, trades = (make_spec(name, "F") for name in ("at", "trades"))
    fp = make_spec("fp", "F", attack={"eps": 0.05, "steps": 2, "train": "pgd"})
    assert at.fingerprint() == fp.fingerprint()
    assert trades.fingerprint() != at.fingerprint()
    assert isinstance(at.canonical(), TrialSpec)
    assert at.canonical().adversary == "pgd"
