"""Claims about searches for latency: which device table they have, and what is said where there is
none."""

import re
from pathlib import Path

import pytest

from bitfront.cli import main
from bitfront.search.cluster.remote.words import sent_files
from bitfront.search.config.bounds import cost_bounds, reference_point
from bitfront.search.config.cautions import cautions
from bitfront.search.config.checks.device import networks
from bitfront.search.config.errors import ConfigError
from bitfront.search.config.load import load, load_text
from bitfront.search.ledger.folder import home
from bitfront.search.session.preparation import differences
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.costs import devices
from bitfront.trainables.costs.devices import FOLDER, KEPT, DeviceTable
from bitfront.trainables.runtime.machine import cpu_name
from testbed.devices import REST, made_device, made_times

FOR_LATENCY = "objectives={val_accuracy: max, latency_ms: min}"


@pytest.fixture(autouse=True)
def _looked_at(monkeypatch):
    monkeypatch.setattr(devices, "_homes", [])
    devices.look_in(home())


@pytest.fixture
def tables(make_config):
    """The layers of the tiny search."""
    return [task_cost_table(make_config().task)]


def put(tables, name="made", cpu="CPU of a test"):
    device = made_device(*tables, name=name, cpu=cpu)
    device.write(home() / FOLDER / f"{name}.json")
    return device


def test_without_a_table_one_line_says_how_to_make_it(tiny_yaml, tmp_path, capsys):
    path = tmp_path / "my.yaml"
    path.write_text(tiny_yaml + "limits: {latency_ms: 5}\n")
    assert main(["validate", str(path)]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    line = len(tiny_yaml.splitlines()) + 1
    assert f"my.yaml:{line} limits.latency_ms: no device table has its networks" in told
    assert told.endswith(f"bitfront bench {path}")
    _, space = load(path, timed=False)  # what bench reads
    assert len(networks(space)) == 1


def test_a_search_has_the_table_it_names_with_its_hash(make_space, tables):
    device = put(tables)
    config, space = make_space(FOR_LATENCY, "device=made")
    assert space.device == device
    assert config.device.sha256 == device.digest
    least, greatest = cost_bounds(space)["latency_ms"]
    layers = len(tables[0].plan_layers)
    assert least == pytest.approx(REST + 0.25 * layers)
    assert greatest == pytest.approx(REST + sum(2.0 + i for i in range(layers)))
    assert reference_point(config, space)[1] == pytest.approx(1.1 * greatest)


def test_the_table_of_this_machine_is_found_by_itself(make_space, tables):
    name = devices.usual_name(cpu_name(), 1, 1)
    put(tables, name, "another CPU")
    with pytest.raises(ConfigError, match="no device table has its networks"):
        make_space(FOR_LATENCY)
    put(tables, name, cpu_name())
    config, _ = make_space(FOR_LATENCY)
    assert config.device.table == name


def test_a_limit_that_no_plan_meets_is_refused_with_the_fastest(make_space, tables):
    put(tables)
    least = REST + 0.25 * len(tables[0].plan_layers)
    with pytest.raises(ConfigError, match=rf"latency_ms <= 1; the cheapest reachable is {least:g}"):
        make_space("limits.latency_ms=1", "device=made")


def test_a_search_goes_on_with_the_times_it_began_with(make_space, tables):
    put(tables)
    begun, space = make_space(FOR_LATENCY, "device=made")
    space.device.write(home() / begun.name / KEPT)
    other = made_times(tables[0], full=7.0)
    put(tables).with_networks({tables[0].identity: other}).write(home() / FOLDER / "made.json")
    again, _ = make_space(FOR_LATENCY, "device=made")
    assert differences(begun, again) == []
    stored, space = load_text(begun.dump(), stored=True)
    assert stored.device == begun.device
    new, _ = make_space(FOR_LATENCY, "device=made", "name=other")
    assert any("device.sha256" in text for text in differences(begun, new))
    (home() / begun.name / KEPT).unlink()
    with pytest.raises(ConfigError, match="has changed since"):
        load_text(begun.dump(), stored=True)


@pytest.mark.parametrize(
    ("assignments", "told"),
    [
        (["device=none"], "no device table 'none': there are made"),
        (["device=made", "space.model.width=[16, 32]"], "lacks networks of the space"),
        (["device=made", "space.model.width={int: [8, 512]}"], "more than 64 networks"),
        (["device=made", "space.plan={per: layer, levels: [F, A]}"], "no times of level A"),
        (["device={sha256: x}"], "table"),
    ],
)
def test_what_a_table_cannot_tell_is_said_before_anything_starts(
    make_space, tables, assignments, told
):
    put(tables)
    with pytest.raises(ConfigError, match=told):
        make_space(FOR_LATENCY, *assignments)


def test_a_table_with_all_networks_is_cut_to_those_of_the_space(make_space, make_config):
    tasks = [make_config(f"task.model.width={width}").task for width in (16, 32, 48)]
    device = put([task_cost_table(task) for task in tasks])
    config, space = make_space(FOR_LATENCY, "device=made", "space.model.width=[16, 32]")
    assert len(space.device.networks) == 2
    assert set(space.device.networks) < set(device.networks)
    assert config.device.sha256 != device.digest
    assert isinstance(space.device, DeviceTable)


def test_a_file_beside_the_yaml_is_found_and_sent_along(tiny_yaml, tables, tmp_path):
    path = tmp_path / "mine" / "my.yaml"
    made_device(*tables).write(path.parent / "tables" / "phone.json")
    path.write_text(f"{tiny_yaml}limits: {{latency_ms: 50}}\ndevice: tables/phone.json\n")
    _, space = load(path)
    assert space.device is not None
    assert set(sent_files(path, [])) == {"my.yaml", "tables/phone.json"}
    put(tables)
    path.write_text(f"{tiny_yaml}limits: {{latency_ms: 50}}\ndevice: made\n")
    assert sent_files(path, []).keys() == {"my.yaml", "devices/made.json"}


def test_times_of_other_kernels_are_warned_of(make_space, tables, monkeypatch):
    put(tables, cpu=cpu_name())
    monkeypatch.setattr("bitfront.search.config.cautions.KERNELS", 99)
    assert any("other kernels" in text for text in cautions(*make_space("device=made")))


def test_the_search_on_the_page_loads_with_a_table_of_its_network():
    page = Path(__file__).parents[3] / "docs" / "deploy.md"
    (text,) = re.findall(r"```yaml\n(name: fast-digits\n.*?)```", page.read_text(), re.DOTALL)
    with pytest.raises(ConfigError, match="latency_ms: no device table"):
        load_text(text)
    config, _ = load_text(text, assignments=["objectives={val_accuracy: max}"])
    put([task_cost_table(config.task)], devices.usual_name(cpu_name(), 1, 1), cpu_name())
    config, space = load_text(text)
    assert config.search.bench
    assert cost_bounds(space)["latency_ms"][0] == pytest.approx(REST + 0.25 * 6)
