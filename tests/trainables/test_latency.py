"""Claims about device tables and the cost that is counted with them."""

import json

import pytest

from bitfront.spaces.costs import KnownCosts
from bitfront.trainables.cost import cost_table, task_cost_table
from bitfront.trainables.costs import COSTS, bound, measured, summed
from bitfront.trainables.costs.devices import DeviceTable, usual_name
from bitfront.trainables.errors import UserError
from bitfront.trainables.task import Task, TrialSpec
from testbed.devices import REST, made_device


@pytest.fixture(scope="module")
def table():
    return cost_table("mlp", {"depth": 4, "width": 16}, (1, 8, 8), 10)


@pytest.fixture(scope="module")
def device(table):
    return made_device(table)


def test_latency_is_the_rest_and_the_layers_at_their_levels(table, device):
    (latency,) = bound(device)
    assert len(table.plan_layers) == 3
    assert table.total(latency, "FFF") == pytest.approx(REST + 2 + 3 + 4)
    assert table.total(latency, "BFB") == pytest.approx(REST + 0.25 + 3 + 0.25)
    assert table.total(latency, "WSB") == pytest.approx(REST + 2 + 3 + 0.25)
    rows = table.rows("BFB", further=[latency])
    assert [row.costs["latency_ms"] for row in rows if row.planned] == [0.25, 3, 0.25]
    assert device.describe() in latency.label


def test_without_a_table_latency_is_declared_and_not_counted(table):
    assert [cost.name for cost in measured()] == ["latency_ms"]
    assert "latency_ms" in COSTS
    assert "latency_ms" not in {cost.name for cost in summed()}
    assert "latency_ms" not in table.costs("BBB")
    assert bound(None) == []


def test_points_of_a_space_have_it_beside_all_other_costs():
    task = Task.model_validate({"dataset": "digits", "model": {"name": "mlp", "depth": 4}})
    known = KnownCosts(1e6, bound(made_device(task_cost_table(task))))
    found = known.of(TrialSpec(task=task, method="bnn", plan="BBF"))
    assert found["latency_ms"] == pytest.approx(REST + 0.25 + 0.25 + 4)
    assert found["flops"] > 0


def test_a_network_is_known_by_its_layers(table, device):
    same = cost_table("mlp", {"depth": 4, "width": 16}, (8, 8), 10, ["layers.1"])
    wider = cost_table("mlp", {"depth": 4, "width": 17}, (1, 8, 8), 10)
    assert same.identity == table.identity
    assert wider.identity != table.identity
    with pytest.raises(UserError, match="no times of this network"):
        wider.total(bound(device)[0], "FFF")


def test_a_level_that_was_not_measured_is_an_error(table, device):
    with pytest.raises(UserError, match="at level A, only at F, W, B"):
        table.total(bound(device)[0], "FFA")


def test_a_table_is_read_back_as_it_was_written(device, tmp_path):
    file = tmp_path / "devices" / "made.json"
    device.write(file)
    found = DeviceTable.read(file)
    assert found == device
    assert found.digest == device.digest
    assert found.with_networks({"x": next(iter(device.networks.values()))}).digest != device.digest


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"bitfront_device": 2}, "newer bitfront"),
        ({"threads": 0}, "damaged: threads"),
        ({"networks": {"x": {"rest": -1}}}, "damaged: networks.x"),
        ({"more": 1}, "damaged: more"),
    ],
)
def test_a_damaged_table_is_refused_with_the_key(device, tmp_path, change, told):
    file = tmp_path / "made.json"
    device.write(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=told):
        DeviceTable.read(file)
    file.write_text("{}")
    with pytest.raises(UserError, match="not a device table"):
        DeviceTable.read(file)


def test_tables_are_named_after_cpu_threads_and_batch():
    name = usual_name("Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz (skylake)", 2, 8)
    assert name == "intel-core-i7-8550u-1-80ghz-skylake-2-threads-batch-8"
