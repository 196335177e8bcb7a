"""What `submit` says of the driver it has started, and the exit code it ends with: the table of
docs/cluster.md. What the driver prints is printed here by the real command, as it would be there;
the dashboard that tells of its job is a stub (test_jobs.py has a real one)."""

import json
from types import SimpleNamespace

import pytest

from bitfront import cli
from bitfront.search.cluster import jobs
from bitfront.search.cluster.resources import Cluster
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.submission import PASSED
from bitfront.trainables.errors import UserError

YAML = """\
name: away
task: {dataset: digits, model: {name: mlp, depth: 3, width: 8}, epochs: 2, subset: 200}
space: {method: [bnn], plan: {per: layer, levels: [F, B]}, optimizer.lr: {float: [0.001, 0.1]}}
search: {trials: 5, sampler: random}
tracking: {enabled: false}
"""
BEGINS = "search away: 5 to go, in /there/away"


class Dashboard:
    """Tells of one job: its states, one a question, and what its driver has printed."""

    def __init__(self, states, log, **more):
        self.states, self.printed, self.more = [*states], log, more

    def job(self, job):
        status = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return None if status is None else {"status": status, **self.more}

    def log(self, job):
        return self.printed


@pytest.fixture
def submit(tmp_path, monkeypatch, capsys):
    """Submit the search at a head that tells what is given; (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "away.yaml").write_text(YAML)
    monkeypatch.setattr(jobs, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(jobs.Head, "submit", lambda *_: "bitfront-away-1")

    def call(states, log="", options=(), **more):
        monkeypatch.setattr(jobs, "Dashboard", lambda _: Dashboard(states, log, **more))
        code = cli.main(["submit", "away.yaml", "--address", "http://there", *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def driver(tmp_path, monkeypatch, capsys):
    """The exit code of a driver with these options, and what it prints before its first trial."""

    def call(*options):
        home = ["--home", str(tmp_path / "there")]
        code = cli.main(["run", "away.yaml", *home, "--address", "auto", *options])
        said = capsys.readouterr()
        return code, said.out + said.err

    return call


def no_data(tmp_path, monkeypatch):
    """A data set whose files are not where the head looks for them."""
    (tmp_path / "empty").mkdir()
    return ["--set", "task.dataset=fashion-mnist", "--data-dir", str(tmp_path / "empty")]


def a_taken_name(tmp_path, monkeypatch):
    from bitfront.search.config.load import load_text

    config, space = load_text(YAML, "away.yaml", ["task.epochs=3"])
    folder = SearchFolder(tmp_path / "there" / "away")
    folder.path.mkdir(parents=True)
    folder.config_file.write_text(config.dump())
    Ledger(folder.ledger_url, config, space).ask()
    return []


def no_node_that_fits(tmp_path, monkeypatch):
    """The check of the cluster itself, at the place where a driver that is connected makes it."""
    node = Cluster(({"CPU": 2.0, "licence": 1.0},))
    monkeypatch.setattr(
        "bitfront.search.session.launch._run_trials",
        lambda *_: node.check({"CPU": 1.0, "zeta": 1.0}),
    )
    return ["--set", "resources.custom={zeta: 1}"]


def no_permission(tmp_path, monkeypatch):
    """A storage of checkpoints that cannot be written."""
    (tmp_path / "file").write_text("")
    return ["--set", f"storage={tmp_path}/file/checkpoints"]


@pytest.mark.parametrize(
    ("mistake", "told", "hint"),
    [
        (no_data, "error: dataset 'fashion-mnist' not found: looked for ", "python -c"),
        (a_taken_name, "exists with another configuration: task.epochs: 3 -> 2", "--name away-2"),
        (no_node_that_fits, "wants 1 CPU and 1 zeta, and no node has that", "ray start"),
        (no_permission, "file/checkpoints", "storage"),
    ],
)
def test_a_search_that_is_refused_there_is_refused_here(
    mistake, told, hint, submit, driver, tmp_path, monkeypatch
):
    """With the driver's own line, hint and exit code, and without what it printed before."""
    (tmp_path / "away.yaml").write_text(YAML)
    code, printed = driver(*mistake(tmp_path, monkeypatch))
    assert code == 2
    assert PASSED not in printed
    log = f"a line before\n{printed}"
    code, out, err = submit(["PENDING", "RUNNING", "FAILED"], log, driver_exit_code=2)
    assert (code, out) == (2, "")
    assert told in err
    assert hint in err
    assert "a line before" not in err
    assert err.endswith("search 'away' did not begin at http://there (job bitfront-away-1)\n")
    assert "Traceback" not in err
    code, out, err = submit(["FAILED"], log, ["--json"], driver_exit_code=2)
    assert code == 2
    assert json.loads(out)["state"] == "refused"
    assert told in json.loads(out)["message"]


WAITS = "a trial wants 1 GPU, and no node has that yet: waiting for the autoscaler; the cluster ..."
WARNS = "warning: trials train on CPUs, and the cluster has 2 GPUs: ..."


@pytest.mark.parametrize(
    ("states", "log", "more", "state", "code", "said"),
    [
        (["RUNNING"], [BEGINS, PASSED], {}, "running", 0, "'away' runs at http://there as job"),
        (["RUNNING"], [BEGINS, WAITS, PASSED], {}, "waiting", 0, "waits at http://there as job"),
        (["SUCCEEDED"], ["Front of away"], {"driver_exit_code": 0}, "ended", 0, "has ended"),
        (["FAILED"], [PASSED, "no front"], {"driver_exit_code": 1}, "ended", 1, "has ended"),
        # A process that was killed says nothing, and one that Ray ended is told of in our words.
        (["FAILED"], [BEGINS], {"driver_exit_code": -9}, "refused", 137, BEGINS),
        (["STOPPED"], [], {"message": "stopped by a user"}, "refused", 1, "stopped by a user"),
        (["FAILED"], [jobs.OUT_OF_MEMORY], {}, "refused", 1, "the head is short of memory"),
        ([None], [], {}, "refused", 1, "not on Ray's list any more"),
    ],
)
def test_every_state_has_its_words_and_its_exit_code(states, log, more, state, code, said, submit):
    log = "\n".join(log) + "\n"
    found, out, err = submit(states, log, **more)
    assert (found, said in (err if state == "refused" else out)) == (code, True)
    found, out, _ = submit(states, log, ["--json"], **more)
    assert (found, json.loads(out)["state"]) == (code, state)


def test_warnings_of_the_driver_are_shown_and_what_it_does_meanwhile_is_not(submit):
    code, out, err = submit(["RUNNING"], "\n".join([BEGINS, WARNS, PASSED]))
    assert (code, WARNS in err, BEGINS in err) == (0, True, False)
    assert "runs at" in out


def test_checks_that_take_long_are_left_alone_and_a_script_need_not_wait(submit, monkeypatch):
    code, out, _ = submit(["RUNNING"], "never looked at", ["--no-wait"])
    assert code == 0
    assert "was sent to http://there as job bitfront-away-1" in out
    monkeypatch.setattr(jobs, "BEGIN_SECONDS", -1.0)
    code, out, _ = submit(["RUNNING"], "reading fashion-mnist")
    assert code == 0
    assert "is still being prepared at http://there as job bitfront-away-1: reading" in out


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("reading digits ...\n", ["reading digits ..."]),
        ("Running entrypoint for job bitfront-away-1: export BITFRONT_HOME=...\n", []),
    ],
)
def test_what_a_driver_does_is_told_meanwhile_and_rays_own_words_are_not(log, told, monkeypatch):
    monkeypatch.setattr(jobs, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(jobs, "Dashboard", lambda _: Dashboard(["RUNNING", "FAILED"], log))
    seen = []
    assert jobs.Head("http://there").begun("bitfront-away-1", seen.append).state == "refused"
    assert seen == told


def test_a_head_of_which_only_a_part_came_up_says_to_start_it_again(monkeypatch, tmp_path):
    """Ray's dashboard answers, but what starts jobs ended at the start, as on a machine too busy
    for it."""

    def refuse(**job):
        raise RuntimeError("Request failed with status code 500: No available agent to submit job")

    monkeypatch.setattr(jobs.Head, "_client", lambda _: SimpleNamespace(submit_job=refuse))
    monkeypatch.setattr(jobs, "AGENT_SECONDS", -1.0)
    with pytest.raises(UserError, match="takes no jobs: No available agent") as caught:
        jobs.Head("http://there")._start(entrypoint="true")
    assert "start it again (ray up)" in str(caught.value.hint)
