"""Claims about `bitfront bench` of models, recipes and searches, and the tables it writes."""

import json
from types import SimpleNamespace

import pytest

import bitfront as bf
from bitfront.cli import main
from bitfront.search.ledger.folder import home
from bitfront.trainables.costs import devices
from bitfront.trainables.costs.devices import FOLDER, DeviceTable, usual_name
from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime import measuring, timing
from bitfront.trainables.runtime.machine import cpu_name

SMALL = ["mlp", "depth=4", "width=16", "--shape", "1x8x8", "--classes", "10"]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    """Networks take 5 ms, and half a millisecond less for each of their binary layers."""

    def known(calls, seconds):
        return {plan: 5.0 - 0.5 * plan.count("B") for plan in calls}

    monkeypatch.setattr(measuring, "side_by_side", known)
    monkeypatch.setattr(devices, "_homes", [])


def test_a_model_becomes_a_table_that_cost_counts_with(capsys):
    assert main(["bench", *SMALL, "--checks", "3"]) == 0
    told = capsys.readouterr().out
    assert "3 other random plans" in told
    assert "0.0 %" in told
    name = usual_name(cpu_name(), 1, 1)
    table = DeviceTable.read(home() / FOLDER / f"{name}.json")
    assert [times.model for times in table.networks.values()] == ["mlp depth=4 width=16"]
    assert f"--device {name}" in told
    words = ["cost", *SMALL, "--plan", "BFB", "--device", name]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["totals"]["latency_ms"] == pytest.approx(4.0)
    assert found["full_precision"]["latency_ms"] == pytest.approx(5.0)
    assert all("latency_ms" in layer for layer in found["layers"])
    assert main(words) == 0
    totals = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["latency_ms", "4", "5", "80.00"] in totals


def test_further_networks_join_a_table_and_another_machine_does_not(capsys):
    assert main(["bench", *SMALL, "--checks", "1", "--out", "mine"]) == 0
    wider = [word.replace("width=16", "width=24") for word in SMALL]
    assert main(["bench", *wider, "--checks", "1", "--out", "mine", "--json"]) == 0
    capsys.readouterr()
    assert len(DeviceTable.read(home() / FOLDER / "mine.json").networks) == 2
    assert main(["bench", *SMALL, "--out", "mine", "--batch", "8"]) == 2
    told = capsys.readouterr()
    assert "give this table another name" in told.err
    assert told.out == ""  # said before anything is measured


def test_all_networks_of_a_search_are_measured_at_the_levels_of_its_plans(tmp_path, capsys):
    path = tmp_path / "my.yaml"
    path.write_text(
        "task: {dataset: digits, model: {name: mlp, depth: 3}, epochs: 1}\n"
        "space: {method: bnn, plan: {per: layer, levels: [F, B]}, model.width: [8, 16]}\n"
        "objectives: {val_accuracy: max, latency_ms: min}\n"
    )
    assert main(["validate", str(path)]) == 2
    assert f"bitfront bench {path}" in capsys.readouterr().err.replace("\n ", "")
    assert main(["bench", str(path), "--checks", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["networks"]) == 2
    assert all(
        set(times["layers"][name]) == {"F", "B"}
        for times in found["networks"].values()
        for name in times["layers"]
    )
    assert main(["validate", str(path)]) == 0


def test_a_word_that_means_nothing_is_an_error_with_the_nearest_name(capsys):
    assert main(["bench", "cresnet2O"]) == 2
    assert "cresnet20" in capsys.readouterr().err


def test_a_packed_file_that_is_missing_is_said_to_be(tmp_path, capsys):
    assert main(["bench", str(tmp_path / "seed0.safetensors")]) == 2
    assert "seed0.safetensors: no such file" in capsys.readouterr().err.replace("\n ", "")


@pytest.mark.parametrize(("each", "rounds"), [(10.0, 1), (1.0, 4), (0.4, 5), (0.125, 14)])
def test_a_slow_network_is_not_measured_for_much_longer_than_asked(each, rounds, monkeypatch):
    """Two seconds were asked for: at least five rounds, unless they take three times as long."""
    seen = SimpleNamespace(now=0.0, calls=0)

    def call():
        seen.now += each
        seen.calls += 1

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: seen.now))
    monkeypatch.setattr(timing, "clock", lambda: lambda: seen.now)
    found = timing.milliseconds({"call": call}, seconds=2.0)
    assert found["call"] == pytest.approx(1000 * each)
    assert seen.calls == 2 + rounds  # two to warm up, and to see how long it takes


def test_a_search_in_python_measures_itself():
    search = bf.Search(
        {"name": "mlp", "depth": 3, "width": 8},
        "digits",
        objectives={"val_accuracy": "max", "latency_ms": "min"},
    )
    with pytest.raises(UserError, match=r"make one with search.bench\(\)"):
        search.validate()
    path = search.bench()
    _, space = search.load()
    assert space.device is not None
    assert path == home() / FOLDER / f"{space.device.name}.json"
