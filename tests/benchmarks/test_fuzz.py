"""A slice of the fuzz of everything that is read from files, and that it notices what it is for."""

import pytest

from benchmarks.fuzz import Bench, nothing_starts, try_case

pytestmark = pytest.mark.slow

SLICE = {"yamls": 80, "sets": 40, "packed": 20, "stored": 6, "ledgers": 6}
# Not the one of the published run.
SEED = 17


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("fuzz"))
    bench.make()
    return bench


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch, bench):
    from bitfront.search.cluster import tuner
    from bitfront.verbs import launch
    from bitfront.verbs.final import train

    monkeypatch.chdir(bench.folder)
    for module, name in (
        (train, "train_recipe"),
        (tuner, "run_trials"),
        (launch, "PICTURES"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
    nothing_starts("stored")


@pytest.mark.parametrize("kind", SLICE)
def test_mangled_input_is_answered_in_a_line(bench, kind):
    bench.warm_up(kind)
    findings = [f for number in range(SLICE[kind]) for f in try_case(bench, kind, SEED, number)[0]]
    assert findings == []


def test_the_fuzz_notices_tracebacks_escapes_and_long_messages(bench, monkeypatch):
    from bitfront.trainables.errors import UserError

    def raising(error):
        def validate(args):
            raise error

        return validate

    case = next(n for n in range(20) if not _is_recipe(bench, n))
    told = []
    long = UserError("")
    long.message = "x" * 200_000
    for error in (ValueError("a bug"), long, SystemExit(7)):
        monkeypatch.setattr("bitfront.verbs.searching.validate.action", raising(error))
        ((found,), _) = try_case(bench, "yamls", SEED, case)
        told.append(found["wrong"])
    assert told[0] == "traceback: ValueError: a bug"
    assert told[1].startswith("a message of 200,0")
    assert told[2] == "exit code 7"


def _is_recipe(bench, number):
    import random

    (step,) = bench.run("yamls", random.Random(f"{SEED}/yamls/{number}"))
    return step[0] == "train"
