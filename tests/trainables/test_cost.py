"""Claims about the counters: the numbers of docs/methods.md 4.3 and 4.10, and that `bytes` is what
a packed checkpoint really holds."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bitfront.spaces.costs import OWN_SHARE
from bitfront.trainables import packed
from bitfront.trainables.cost import CostTable, cost_table, task_cost_table, trace
from bitfront.trainables.costs import COSTS, cost_names, summed
from bitfront.trainables.errors import UserError
from bitfront.trainables.training.network import Network

FULL, HALF = 5.6078, 2.8039  # % of the full-precision network that one layer saves
HALF_LAYERS = [6, 12]  # the two layers of stride 2, counted from 0


@pytest.fixture(scope="module")
def cresnet20() -> CostTable:
    return cost_table("cresnet20", {}, (3, 32, 32), 10)


def with_halves(k: int) -> str:
    """A plan of cresnet20 that saves k half layers."""
    full = [i for i in range(18) if i not in HALF_LAYERS]
    whole = min(k // 2, 16)
    chosen = full[:whole] + HALF_LAYERS[: k - 2 * whole]
    return "".join("B" if i in chosen else "F" for i in range(18))


# --- conformance --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COSTS)
def test_a_cost_is_declared_and_never_grows_where_layers_become_binary(name: str) -> None:
    cost = COSTS.get(name)
    assert cost.name == name
    assert cost.label
    assert cost.doc
    if name == OWN_SHARE:  # stated by a space, which compares networks
        return
    if cost.on is not None:  # measured: a binary layer may be slower (test_latency.py)
        return
    table = cost_table("mlp", {"depth": 3, "width": 7}, (2,), 2, "all")
    plans = ["F" * 4, "FFFW", "FFWB", "WBBB", "BBBB"]
    found = [table.costs(plan)[name] for plan in plans]
    assert all(math.isfinite(value) and value >= 0 for value in found)
    assert found == sorted(found, reverse=True)


# --- MixBin's flops, docs/methods.md 4.3 and 4.10, D1 ---------------------------------------------


def test_cresnet20_has_the_published_totals(cresnet20: CostTable) -> None:
    full, binary = cresnet20.totals("F" * 18), cresnet20.totals("B" * 18)
    assert full["flops"] == 41_414_656
    assert full["flops_pct"] == 100.0
    assert binary["flops"] == 1_933_312
    assert binary["flops_pct"] == pytest.approx(4.6682, abs=1e-4)


def test_each_layer_of_cresnet20_saves_what_the_table_says(cresnet20: CostTable) -> None:
    for i in range(18):
        plan = "F" * i + "B" + "F" * (17 - i)
        saved = 100 - cresnet20.totals(plan)["flops_pct"]
        assert saved == pytest.approx(HALF if i in HALF_LAYERS else FULL, abs=1e-4)


@pytest.mark.parametrize(
    ("halves", "computed"),
    [
        (34, 4.6682), (4, 88.7845), (8, 77.5690), (12, 66.3535), (17, 52.3341), (24, 32.7070),
        (7, 80.3729), (14, 60.7457), (20, 43.9225), (22, 38.3147), (28, 21.4914), (32, 10.2759),
        (21, 41.1186), (29, 18.6876), (6, 83.1767), (13, 63.5496), (31, 13.0799),
    ],
)  # fmt: skip
def test_half_layers_give_the_printed_percentages(cresnet20, halves, computed) -> None:
    assert cresnet20.totals(with_halves(halves))["flops_pct"] == pytest.approx(computed, abs=1e-4)


# Distinct percentages of MixBin's tables, docs/methods.md 4.3.
PRINTED = {
    "cresnet20": [
        4.67, 88.78, 77.57, 66.35, 52.33, 32.71, 80.37, 60.75, 43.92, 38.31, 21.49, 10.28, 41.12,
        18.69, 83.17, 63.54, 18.68,
    ],
    "resnet18": [81.25, 62.50, 43.76, 21.88, 12.51, 25.01],
    "mobilenet": [80.15, 63.18, 61.61, 39.68, 38.38, 13.83, 81.72, 81.20, 61.88, 9.13, 16.71],
}  # fmt: skip
# 11.08 and 13.12 are printed for cresnet20, the others for resnet18's random plans.
UNREACHABLE = {"cresnet20": [11.08, 13.12], "resnet18": [40.62, 24.12, 10.92]}
INPUTS = {"cresnet20": (3, 32, 32), "resnet18": (3, 224, 224), "mobilenet": (3, 64, 64)}


@cache
def reachable(model: str) -> list[float]:
    """Every percentage some plan of F and B has: sums of the layers' savings."""
    table = cost_table(model, {}, INPUTS[model], 100)
    n = len(table.plan_layers)
    left = {100.0}
    for i in range(n):
        saved = 100 - table.totals("F" * i + "B" + "F" * (n - 1 - i))["flops_pct"]
        left |= {round(pct - saved, 6) for pct in left}
    return sorted(left)


def away(model: str, printed: float) -> float:
    return min(abs(pct - printed) for pct in reachable(model))


@pytest.mark.parametrize(
    ("model", "printed"), [(model, pct) for model, rows in PRINTED.items() for pct in rows]
)
def test_the_printed_percentages_are_those_of_some_plan(model: str, printed: float) -> None:
    assert away(model, printed) <= 0.01


@pytest.mark.parametrize(
    ("model", "printed"), [(model, pct) for model, rows in UNREACHABLE.items() for pct in rows]
)
def test_some_printed_percentages_are_those_of_no_plan(model: str, printed: float) -> None:
    assert away(model, printed) > 0.01


@pytest.mark.parametrize("size", [64, 224])
def test_resnet18_has_the_layers_of_the_table_at_any_size(size: int) -> None:
    table = cost_table("resnet18", {}, (3, size, size), 200)
    halves = [4, 8, 12]
    for i in range(16):
        saved = 100 - table.totals("F" * i + "B" + "F" * (15 - i))["flops_pct"]
        assert saved == pytest.approx(3.1246 if i in halves else 6.2492, abs=1e-4)
    assert table.totals("B" * 16)["flops_pct"] == pytest.approx(9.3862, abs=1e-4)
    fixed = sum(x.macs for x in table.layers if not x.planned and x.kind == "conv")
    body = sum(x.macs for x in table.layers if x.planned)
    elements = sum(x.elements for x in table.layers if x.kind == "conv")
    if size == 224:
        assert (body, fixed, elements) == (1_676_279_808, 137_281_536, 2_483_712)
        assert table.totals("F" * 16)["flops"] == 1_821_012_480


def test_resnet18_without_the_max_pool_has_the_printed_total() -> None:
    table = cost_table("resnet18", {"stem": "tiny"}, (3, 64, 64), 200)
    assert sum(layer.macs for layer in table.layers) == 563_384_320


def test_mobilenet_has_the_layers_of_the_table() -> None:
    table = cost_table("mobilenet", {}, (3, 64, 64), 200)
    full = table.totals("F" * 26)
    assert full["flops"] == 395_335_680
    assert table.totals("B" * 26)["flops_pct"] == pytest.approx(2.0903, abs=1e-4)
    macs = [layer.macs for layer in table.layers if layer.planned]
    wide = [i for i in range(26) if macs[i] in (37_748_736, 4_194_304)]
    assert [i // 2 + 1 for i in wide[::2]] == [3, 5, 7, 8, 9, 10, 11, 13]
    assert {macs[i] for i in range(26) if i not in wide} == {9_437_184, 2_097_152}


def test_a_depthwise_convolution_has_a_mac_a_weight_and_position() -> None:
    table = cost_table("mobilenet", {"form": "depthwise"}, (3, 64, 64), 200)
    first = next(layer for layer in table.layers if layer.planned)
    assert (first.weights, first.macs) == (9 * 32, 9 * 32 * 32 * 32)


def test_cresnet20_has_the_layers_of_the_table(cresnet20: CostTable) -> None:
    rows = {layer.name: layer for layer in cresnet20.layers}
    weights = [2304] * 6 + [4608] + [9216] * 5 + [18432] + [36864] * 5
    assert len(cresnet20.plan_layers) == 18
    for i, layer in enumerate(cresnet20.plan_layers):
        row = rows.pop(layer.name)
        assert row.planned
        assert row.macs == (1_179_648 if i in HALF_LAYERS else 2_359_296)
        assert row.weights == weights[i]
    classifier = rows.pop("classifier")
    assert (classifier.kind, classifier.planned, classifier.macs) == ("classifier", False, 640)
    assert sorted((row.macs, row.weights) for row in rows.values()) == [
        (131_072, 512),
        (131_072, 2_048),
        (442_368, 432),
    ]
    body = sum(row.macs for row in cresnet20.layers if row.planned)
    elements = sum(row.elements for row in cresnet20.layers if row.kind == "conv")
    assert (body, elements) == (40_108_032, 200_704)


def test_binary_weights_alone_cost_half_the_macs_and_three_an_element(cresnet20) -> None:
    traced = {layer.name: layer for layer in cresnet20.layers}
    for full, weights, both in zip(*(cresnet20.rows(level * 18) for level in "FWB"), strict=True):
        layer = traced[full.name]
        if layer.planned:
            assert full.costs["flops"] == layer.macs + 3 * layer.elements
            assert weights.costs["flops"] == layer.macs / 2 + 3 * layer.elements
            assert both.costs["flops"] == layer.macs / 64 + 3 * layer.elements
        else:
            assert full.costs["flops"] == weights.costs["flops"] == both.costs["flops"]
    assert cresnet20.totals("W" * 18)["flops"] == 40_108_032 / 2 + 704_512 + 3 * 200_704


def test_the_classifier_is_not_counted_unless_it_is_planned(cresnet20: CostTable) -> None:
    body = {row.name: row.costs["flops"] for row in cresnet20.rows("F" * 18)}
    assert body["classifier"] == 0.0
    everything = cost_table("cresnet20", {}, (3, 32, 32), 10, "all")
    n = len(everything.plan_layers)
    assert n == 18 + 4
    rows = {row.name: row for row in everything.rows("F" * n)}
    assert rows["classifier"].costs["flops"] == 640 + 3 * 10
    assert everything.totals("F" * n)["flops"] == 41_414_656 + 640 + 30
    assert everything.totals("B" * n)["flops"] == (40_812_544 + 640) / 64 + 3 * (200_704 + 10)


def test_ops64_counts_every_layer_and_only_b_layers_less(cresnet20: CostTable) -> None:
    macs = 40_108_032 + 704_512 + 640
    assert cresnet20.totals("F" * 18)["ops64"] == macs
    assert cresnet20.totals("W" * 18)["ops64"] == macs
    assert cresnet20.totals("B" * 18)["ops64"] == 40_108_032 / 64 + 704_512 + 640


def test_bops_are_macs_times_weight_bits_times_activation_bits(cresnet20: CostTable) -> None:
    fixed = 1024 * (704_512 + 640)
    for level, bits in (("F", 1024), ("W", 32), ("B", 1)):
        assert cresnet20.totals(level * 18)["bops"] == bits * 40_108_032 + fixed


def test_a_binary_weight_takes_a_bit_and_a_scale_four_bytes(cresnet20: CostTable) -> None:
    weights = sum(layer.weights for layer in cresnet20.layers if layer.planned)
    channels = sum(layer.channels for layer in cresnet20.layers if layer.planned)
    full = cresnet20.totals("F" * 18)["bytes"]
    saved = 4 * weights - weights // 8
    for scale, scales in (("none", 0), ("layer", 18), ("channel", channels)):
        assert cresnet20.totals("B" * 18, scale)["bytes"] == full - saved + 4 * scales
        assert cresnet20.totals("F" * 18, scale)["bytes"] == full


def test_an_accumulator_costs_what_binary_activations_cost(cresnet20: CostTable) -> None:
    assert cresnet20.totals("A" * 18) == cresnet20.totals("B" * 18)


def test_shifts_of_inputs_take_four_bytes_a_channel(cresnet20: CostTable) -> None:
    inputs = 16 * 7 + 32 * 6 + 64 * 5
    for level, floats in (("F", 0), ("W", 0), ("B", inputs), ("A", inputs)):
        plain, shifted = (cresnet20.totals(level * 18, shifts=s)["bytes"] for s in (False, True))
        assert shifted - plain == 4 * floats


def test_a_byte_that_is_not_full_counts_whole() -> None:
    table = cost_table("mlp", {"depth": 3, "width": 5}, (2,), 2)
    plans = table.rows("FF")[1], table.rows("WF")[1]
    assert [row.costs["bytes"] for row in plans] == [4 * 25, 4]


# --- any network --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(data=st.data(), scale=st.sampled_from(["none", "layer", "channel"]))
@pytest.mark.parametrize(
    ("name", "params", "shape", "scope"),
    [
        ("cresnet20", {}, (3, 32, 32), "body"),
        ("cresnet", {"depth": 8, "width": 3}, (1, 8, 8), "all"),
        ("mlp", {"depth": 4, "width": 7}, (2,), "all"),
        ("mlp", {"depth": 3, "width": 32}, (1, 28, 28), "body"),
    ],
)
def test_making_a_layer_more_binary_never_costs_more(name, params, shape, scope, data, scale):
    table = cost_table(name, params, shape, 10, scope)
    n = len(table.plan_layers)
    around = list(data.draw(st.text("FWB", min_size=n, max_size=n)))
    where = data.draw(st.integers(0, n - 1))
    costs = []
    for level in "FWB":
        around[where] = level
        costs.append(table.totals("".join(around), scale))
    full, weights, both = costs
    for strictly in ("flops", "flops_pct", "bops"):
        assert full[strictly] > weights[strictly] > both[strictly]
    assert full["ops64"] == weights["ops64"] > both["ops64"]
    assert full["bytes"] >= weights["bytes"] == both["bytes"]


@settings(deadline=None, max_examples=60)
@given(plan=st.text("FWB", min_size=18, max_size=18))
def test_the_rows_add_up_to_the_totals(plan: str) -> None:
    table = cost_table("cresnet20", {}, (3, 32, 32), 10)
    rows, totals = table.rows(plan, "channel"), table.totals(plan, "channel")
    for cost in summed():
        rest = cost.of_rest(table) if cost.of_rest else 0
        assert sum(row.costs[cost.name] for row in rows) + rest == pytest.approx(totals[cost.name])
    assert [row.level for row in rows if row.planned] == list(plan)
    assert {"flops", "ops64", "bops", "bytes", "flops_pct"} <= set(totals) <= set(cost_names())


@pytest.mark.parametrize("params", [{"depth": 1, "width": 8}, {"depth": 3, "width": 8}])
def test_a_full_precision_network_is_at_100_percent(params: dict) -> None:
    table = cost_table("mlp", params, (2,), 2)
    assert table.totals("F" * len(table.plan_layers))["flops_pct"] == 100.0


def test_a_plan_that_does_not_fit_is_a_user_error(cresnet20: CostTable) -> None:
    with pytest.raises(UserError, match="has 17 letters"):
        cresnet20.totals("F" * 17)


def test_tables_are_remembered_by_what_the_parameters_mean() -> None:
    short = cost_table("mlp", {}, (2,), 2)
    assert cost_table("mlp", {"depth": 3, "width": 256}, (2,), 2) is short
    assert cost_table("mlp", {"depth": 4}, (2,), 2) is not short


def test_strides_groups_and_repeated_layers_are_counted_as_they_run() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(4, 8, 3, stride=2, padding=1)
            self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=4)
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.grouped(self.grouped(self.stem(x)))
            return self.head(x.mean((2, 3)))

    with torch.device("meta"):
        net = Net()
    rows = {row.name: row for row in trace(net, (4, 8, 8)).layers}
    assert rows["stem"].macs == 16 * 8 * 4 * 9
    assert rows["grouped"].macs == 2 * 16 * 8 * 2 * 9
    assert rows["grouped"].elements == 2 * 16 * 8
    assert rows["head"].macs == 24


def test_tracing_leaves_the_network_as_it_was() -> None:
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    net.train()
    trace(net, (4,))
    assert net.training
    assert not any(m._forward_hooks for m in net.modules())


# --- bytes, against real files ------------------------------------------------------------------

MLP = {"name": "mlp", "depth": 3, "width": 21}
RESIDUAL = {"name": "cresnet", "depth": 8, "width": 5}
ODD = {"name": "cresnet", "depth": 8, "width": 3, "activation": "rprelu", "unit": "classic"}


@pytest.mark.parametrize("scale", ["none", "layer", "channel"])
@pytest.mark.parametrize(
    ("model", "plan", "binarize"),
    [
        (MLP, "FF", "body"),
        (MLP, "WB", "body"),
        (MLP, "BFWB", "all"),
        (RESIDUAL, "BBBBBB", "body"),
        (RESIDUAL, "FWBFWB", "body"),
        (RESIDUAL, "WBBFBBWFBB", "all"),
        (ODD, "BWFBFB", "body"),
    ],
)
def test_bytes_are_what_the_packed_file_holds(
    make_spec, tmp_path: Path, model: dict, plan: str, binarize: str, scale: str
) -> None:
    spec = make_spec("bnn", plan=plan, params={"scale": scale}, model=model, binarize=binarize)
    path = tmp_path / "packed.safetensors"
    reported = packed.save(Network(spec), spec, path, {})
    content = path.read_bytes()
    payload = len(content) - 8 - int.from_bytes(content[:8], "little")
    assert task_cost_table(spec.task).totals(plan, scale)["bytes"] == payload == reported
