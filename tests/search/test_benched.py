"""Claims about latency in a search that was run: its column, other axes, and points that were
measured when it ended."""

import json
import pickle

import pytest

from bitfront.cli import main
from bitfront.search import benched, measuring
from bitfront.search.ledger.folder import SearchFolder, home
from bitfront.search.measuring import Measuring, task_options
from bitfront.search.recipes.choice import best_within
from bitfront.search.recipes.export import recipe_of
from bitfront.search.results.figure_data import MEASURED_HEAD, front_points, seen_by
from bitfront.search.results.results import Results
from bitfront.search.session.session import Session
from bitfront.search.tracking.notes import FRONT
from bitfront.terminal.summary import front_summary
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.costs import devices
from bitfront.trainables.costs.devices import FOLDER
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.runtime import measuring as runtime
from bitfront.trainables.runtime.planned import Subject
from testbed.devices import made_device


@pytest.fixture
def ran(make_space, make_config, monkeypatch):
    """A search for latency after six trials, as if trained."""
    monkeypatch.setattr(devices, "_homes", [])
    devices.look_in(home())
    made_device(task_cost_table(make_config().task)).write(home() / FOLDER / "made.json")
    objectives = "objectives={val_accuracy: max, latency_ms: min}"
    config, space = make_space(objectives, "device=made", "search.bench=true")
    folder = SearchFolder(home() / config.name)
    write_atomically(folder.config_file, config.dump())
    session = Session(config, space, folder, None)
    for _ in range(6):
        entry = session.ask()
        row = {"epoch": 3, "val_accuracy": 0.9 - 0.08 * entry.spec.plan.count("B")}
        session.finish(entry.id, {**row, "history": [row]})
    return session, folder


def test_the_front_is_of_latency_and_can_be_looked_at_by_another_cost(ran, capsys):
    _, folder = ran
    results = Results.of(folder)
    times = [entry.costs["latency_ms"] for entry in results.front]
    assert times == sorted(times)
    assert "latency_ms" in front_summary(results)
    assert best_within(results, f"latency_ms={times[0]}").costs["latency_ms"] == times[0]
    other = seen_by(results, "bytes")
    assert list(other.config.objectives) == ["val_accuracy", "bytes"]
    assert other.front[0].costs["bytes"] == min(e.costs["bytes"] for e in results.entries)
    assert main(["front", folder.name, "--x", "bytes", "--json"]) == 0
    assert "bytes" in json.loads(capsys.readouterr().out)["objectives"]
    assert main(["front", folder.name, "--x", "byte"]) == 2
    assert "did you mean 'bytes'" in capsys.readouterr().err


def test_points_are_measured_and_shown_beside_what_was_predicted(ran, monkeypatch):
    session, folder = ran
    assert Results.of(folder).benched is None
    asked = []

    def known(calls, seconds):
        asked.append(next(iter(calls.values()))().shape)
        return {name: 1.25 + i for i, name in enumerate(calls)}

    monkeypatch.setattr(runtime, "side_by_side", known)
    front = Results.of(folder).front
    found = benched.bench_front(front, folder, session.ledger.space.device, lambda _text: None)
    assert asked == [(1, 10)]
    results = Results.of(folder)
    assert results.benched == found
    assert set(found.milliseconds) == {entry.id for entry in front}
    summary = front_summary(results, wide=True)
    assert MEASURED_HEAD in summary
    assert "1.25" in summary
    assert found.cpu in summary.replace("\n", " ")
    first = front[0]
    point = next(p for p in front_points(results) if p.trial == first.id)
    assert point.extra[MEASURED_HEAD] == "1.25"
    assert results.as_json()["points"][0][benched.MEASURED] == 1.25
    assert recipe_of(results, first, None, [0]).expected[benched.MEASURED] == 1.25
    assert session.front_metrics()[first.id][FRONT + benched.MEASURED] == 1.25


@pytest.mark.parametrize("text", ["{}", '{"cpu": 1}', "[]", "{"])
def test_damaged_measurements_are_said_to_be(ran, text):
    _, folder = ran
    (folder.path / benched.FILE).write_text(text)
    with pytest.raises(UserError, match="damaged"):
        benched.read(folder)


# --- on a node of a cluster ----------------------------------------------------------------------

WORK = Measuring([("small", Subject("mlp", {}, (4,), 2))], "FB", 1, 2, 1.0, 5)
NODES = [
    {"Alive": True, "Resources": {"CPU": 8.0, "memory": 1e9, "node:10.0.0.1": 1.0}},
    {"Alive": True, "Resources": {"CPU": 4.0, "pi": 1.0}},
    {"Alive": False, "Resources": {"CPU": 4.0, "gone": 1.0}},
]


def test_a_node_is_asked_for_by_the_resource_it_was_started_with():
    options = task_options(WORK, "pi", NODES)
    assert options["resources"] == {"pi": measuring.TOUCH}
    assert options["num_cpus"] == 2  # as many as threads: no trial beside it on the same cores


@pytest.mark.parametrize("resource", ["gone", "Pi"])
def test_a_resource_that_no_living_node_has_is_an_error_with_those_there_are(resource):
    with pytest.raises(UserError, match="no node was started with it; nodes have pi"):
        task_options(WORK, resource, NODES)


def test_a_node_with_fewer_cores_than_threads_is_an_error():
    few = [{"Alive": True, "Resources": {"CPU": 1.0, "pi": 1.0}}]
    with pytest.raises(UserError, match="no such node has 2 CPUs"):
        task_options(WORK, "pi", few)


def test_a_node_measures_and_its_times_come_back(monkeypatch):
    """The seam to Ray: what is sent, with which options, and that the cluster is left."""
    import ray

    from bitfront.search.cluster import connection

    calls = []

    class Remote:
        def __init__(self, function):
            self.function = function

        def options(self, **given):
            calls.append(given)
            return self

        def remote(self, *sent):
            work, code = pickle.loads(pickle.dumps(sent))
            return self.function(work, code)

    monkeypatch.setattr(connection, "connect", lambda address: calls.append(address) or True)
    monkeypatch.setattr(connection, "leave", lambda: calls.append("left"))
    monkeypatch.setattr(ray, "nodes", lambda: NODES)
    monkeypatch.setattr(ray, "remote", Remote)
    monkeypatch.setattr(ray, "get", lambda answer: answer)
    monkeypatch.setattr(Measuring, "run", lambda self, told: ("a phone", {"x": self.levels}))
    assert measuring.measure_on(WORK, "pi", "auto", print) == ("a phone", {"x": "FB"})
    options = {"num_cpus": 2, "resources": {"pi": measuring.TOUCH}, "max_retries": 0}
    assert calls == ["auto", options, "left"]
