"""Objectives are known by their names: in whatever order a YAML, a ledger or another search has
them, a value belongs to the same one."""

import itertools
import warnings

import pytest

from bitfront.dashboards.pages.comparison import comparable
from bitfront.search.config.space import build_space
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.ledger.reader import LedgerReader
from bitfront.search.ledger.records import objectives_in_order
from bitfront.search.results.comparison import Comparison
from bitfront.search.results.reader import SearchReader
from bitfront.search.results.results import Results
from bitfront.search.session.preparation import prepare
from bitfront.trainables.errors import UserError

MODES = {"val_accuracy": "max", "flops": "min", "bytes": "min"}
ORDERS = [
    dict(zip(names, map(MODES.get, names), strict=True)) for names in itertools.permutations(MODES)
]


@pytest.fixture
def begun(make_space, tmp_path):
    """Begin a search, or go on with it, with objectives in some order; tells some trials."""

    def begin(objectives, trials=2, name="tiny", **options):
        config, _ = make_space(*options.get("words", ()))
        config.name = name
        # As they would be written: what the schema makes of their order is another matter.
        config.objectives = dict(objectives)
        folder = SearchFolder(tmp_path / name)
        folder.path.mkdir(exist_ok=True)
        folder.config_file.write_text(config.dump())
        ledger = Ledger(folder.ledger_url, config, build_space(config))
        for _ in range(trials):
            finish(ledger)
        return folder, config, ledger

    return begin


def finish(ledger):
    entry = ledger.ask()
    metrics = {"epoch": 3, "val_accuracy": 0.95 - 0.02 * entry.spec.plan.count("B")}
    return ledger.tell(entry.id, "complete", metrics, [metrics])


def named(entry, objectives):
    return dict(zip(objectives, entry.values, strict=True))


def expected(entry):
    return {
        "val_accuracy": entry.metrics["val_accuracy"],
        "flops": entry.costs["flops"],
        "bytes": entry.costs["bytes"],
    }


@pytest.mark.parametrize("second", ORDERS)
def test_a_ledger_continued_with_objectives_in_another_order_keeps_its_values(begun, second):
    _, config, first = begun(ORDERS[0])
    folder, other, ledger = begun(second)
    assert dict(zip(second, ledger.reference, strict=True)) == dict(
        zip(config.objectives, first.reference, strict=True)
    )
    reader = LedgerReader(folder.ledger_url, "tiny", second)
    reader.read()
    assert reader.reference == ledger.reference
    assert len(reader.entries) == len(ledger.entries) == 4
    for entry in (*reader.entries, *ledger.entries.values()):
        assert named(entry, other.objectives) == expected(entry)
    # On disk every row is in the order the search began with.
    for trial in ledger.study.get_trials():
        stored = dict(zip(ORDERS[0], trial.values, strict=True))
        assert stored["flops"] == trial.user_attrs["costs"]["flops"]
        assert stored["bytes"] == trial.user_attrs["costs"]["bytes"]


def test_fronts_and_hypervolumes_are_the_same_in_every_order(begun):
    folder, config, _ = begun(ORDERS[0], trials=5)
    told = []
    for order in ORDERS:
        config.objectives = dict(order)
        reader = LedgerReader(folder.ledger_url, "tiny", order)
        reader.read()
        results = Results.from_reader(folder, config, reader)
        told.append(({e.id for e in results.front}, pytest.approx(results.hypervolume_share)))
    assert all(found == told[0] for found in told)


def test_samplers_see_a_ledger_in_the_order_of_the_configuration(begun):
    begun(ORDERS[0])
    _, config, ledger = begun(ORDERS[-1], trials=0)
    for trial, entry in zip(ledger.in_memory.get_trials(), ledger.entries.values(), strict=True):
        assert dict(zip(config.objectives, trial.values, strict=True)) == expected(entry)
    modes = [direction.name for direction in ledger.in_memory.directions]
    assert modes == ["MAXIMIZE" if m == "max" else "MINIMIZE" for m in config.objectives.values()]


def test_a_ledger_that_version_0_1_swapped_reads_as_it_was_measured(begun):
    folder, config, ledger = begun({"val_accuracy": "max", "flops": "min"})
    reference = ledger.reference
    swapped = finish(ledger)
    # What 0.1 did when the YAML came back with `flops` first.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ledger.study.set_metric_names(["flops", "val_accuracy"])
    with ledger.storage._backend.engine.begin() as connection:
        disk = ledger._disk_ids[swapped.id]
        for objective, value in enumerate(reversed(swapped.values)):
            connection.exec_driver_sql(
                "UPDATE trial_values SET value = ? WHERE trial_id = ? AND objective = ?",
                (value, disk, objective),
            )
    config.objectives = {"flops": "min", "val_accuracy": "max"}
    folder.config_file.write_text(config.dump())
    results = Results.of(folder)
    assert dict(zip(results.config.objectives, results.reference, strict=True)) == dict(
        zip(["val_accuracy", "flops"], reference, strict=True)
    )
    for entry in results.entries:
        assert named(entry, results.config.objectives)["flops"] == entry.costs["flops"]
    again = Ledger(folder.ledger_url, config, build_space(config))
    assert all(
        named(e, config.objectives)["flops"] == e.costs["flops"] for e in again.entries.values()
    )


def test_the_order_of_a_yaml_makes_no_other_search(make_config, tiny_yaml, begun, tmp_path):
    config = make_config(text=f"{tiny_yaml}objectives: {{flops: min, val_accuracy: max}}\n")
    assert list(config.objectives) == ["val_accuracy", "flops"]
    assert config.quality.name == "val_accuracy"
    begun({"val_accuracy": "max", "bytes": "min", "flops": "min"})
    objectives = "{flops: min, bytes: min, val_accuracy: max}"
    other = make_config(text=f"{tiny_yaml}objectives: {objectives}\n")
    prepare(other, tmp_path)
    assert list(other.objectives) == ["val_accuracy", "bytes", "flops"]


def test_searches_are_compared_by_the_names_of_their_objectives(begun):
    a, _, _ = begun(ORDERS[0], name="a", trials=4)
    b, _, _ = begun(ORDERS[-1], name="b", trials=4)
    # By hand: the schema would put metrics first.
    first, second = Results.of(a), Results.of(b).in_order(ORDERS[3])
    report = Comparison(first, second).as_json()
    same = Comparison(first, Results.of(b).in_order(first.config.objectives)).as_json()
    assert report == same
    views = [SearchReader(folder).read() for folder in (a, b)]
    views[1] = views[1].in_order(list(ORDERS[3]))
    one, two = comparable(views)
    assert [x.name for x in one.objectives] == [x.name for x in two.objectives]
    for point in two.objective_values:
        entry = second.find(point)
        assert list(two.objective_values[point]) == [
            expected(entry)[x.name] for x in two.objectives
        ]


def test_other_objectives_are_an_error_in_one_line(begun):
    folder, config, _ = begun(ORDERS[0])
    config.objectives = {"val_accuracy": "max", "ops64": "min"}
    with pytest.raises(UserError, match="other objectives"):
        Ledger(folder.ledger_url, config, build_space(config))
    folder.config_file.write_text(config.dump())
    with pytest.raises(UserError, match="other objectives"):
        Results.of(folder)


def test_what_a_ledger_was_begun_with_decides_where_its_names_contradict_it():
    wanted = {"flops": "min", "val_accuracy": "max"}
    assert objectives_in_order(wanted, ["flops", "val_accuracy"], ["max", "min"]) == [
        "val_accuracy",
        "flops",
    ]
    assert objectives_in_order(wanted, [], ["min", "max"]) == ["flops", "val_accuracy"]
