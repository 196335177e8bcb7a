"""A team and its cluster, as one story: head and nodes on machines of their own, MLflow, a database
with a role for each person, an object store. Two people search at once, a machine dies, another one
joins, a search is stopped and continued."""

import re
from collections import Counter

import pytest
from mlflow import MlflowClient

from bitfront.search.ledger.reader import read_entries
from bitfront.search.ledger.states import ENDED, TrialState
from testbed.rig import POSTGRES, ROOT, machines_work, wait_for
from testbed.rig.team import team as started_team

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not machines_work(), reason="may not make namespaces"),
    pytest.mark.skipif(not POSTGRES, reason="PostgreSQL is not installed"),
]

SEARCH = """\
name: NAME
task:
  dataset: digits
  model: {name: mlp, depth: 5, width: 16}
  epochs: 12
  subset: 300
  batch_size: 32
  optimizer: {name: adam, lr: 0.01}
  METRICS
space:
  method: [bnn, bc]
  plan: {per: layer, levels: [F, B]}
search: {sampler: random, trials: TRIALS, seed: 0}
resources: {cpus: 1}
"""
# Ann's own code. On a machine that is told to, every epoch takes a second more.
PACE = """\
import time
from pathlib import Path


def pace(output, target):
    time.sleep(Path.home().joinpath("slow").exists())
    return 1.0
"""
ROLES = ROOT / "clusters" / "database.sql"
TRIALS = 8
# Trials are nice to others who want the cores.
PATIENCE = 480


class Says:
    """What commands print, where the wording is theirs."""

    # It waits where the other one's trials have all places by then.
    submitted = "search '{}' (runs|waits) at {} as job"
    stopped = "search 'anns' is stopped"
    # The node that joins may be counted already.
    lost = r"^node {} was lost, (2 of 3|3 of 4) nodes left: (\d trials? goe?s? on|no trial ran)"
    noise = ("Traceback", "View run", "marked dead", "heartbeat", "WARNING")


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    with started_team(tmp_path_factory.mktemp("team")) as team:
        yield team


def search(name, trials, metrics=""):
    text = SEARCH.replace("NAME", name).replace("TRIALS", str(trials))
    return text.replace("METRICS", metrics)


def ended(url, name):
    try:
        return sum(entry.state in ENDED for entry in read_entries(url, name))
    except Exception:  # the driver is just making the tables
        return 0


@pytest.mark.timeout(1800)
def test_a_day_of_a_team(team):
    database, cluster, there = team.database, team.cluster, ("--address", team.address)
    ann, bob = team.person("ann"), team.person("bob")

    # The administrator: the team's database, as the page says; Bob is forgotten at first.
    database.execute_file(ROLES, member="ann")
    database.execute("CREATE ROLE bob LOGIN")
    urls = {name: database.url_of(name, "bitfront") for name in ("ann", "bob")}
    places = ("--set", f"tracking.uri={team.tracking}", "--set", f"storage={team.objects.place}")

    # All is well for Ann; Bob is told what is missing, in a line with a hint.
    asked = ("--storage", team.objects.place, "--tracking", team.tracking)
    well = ann.start("doctor", *there, *asked, "--ledger", urls["ann"])
    refused = " ".join(bob.call("doctor", "--ledger", urls["bob"], code=1).split())
    assert "FAIL ledger: " in refused
    assert "permission denied" in refused
    assert "Several people, one database" in refused
    well = well.said()
    assert "FAIL" not in well
    assert "resources: 1 node with 0 CPUs, 2 nodes with 1 CPU" in well
    assert "storage: s3://bucket/bitfront: read and written from 3 nodes and here" in well
    assert "a study was made, written, read and deleted" in well
    database.execute_file(ROLES, member="bob")
    bob.call("doctor", "--ledger", urls["bob"])

    # Two searches at once.
    bob.write("bobs.yaml", search("bobs", 3))
    relative = bob.call("submit", "bobs.yaml", *there, "--data-dir", "data", code=2)
    assert "the whole path on the nodes" in relative
    bobs = bob.start("submit", "bobs.yaml", *there, *places, "--ledger", urls["bob"], "--installed")
    ann.write("pace.py", PACE)
    ann.write("anns.yaml", search("anns", TRIALS, "metrics: [pace.py:pace]"))
    said = ann.call("submit", "anns.yaml", *there, *places, "--ledger", urls["ann"])
    assert re.search(Says.submitted.format("anns", team.address), said)
    bobs.said()
    wait_for(lambda: ended(urls["ann"], "anns") >= 1, PATIENCE, "Ann's first trial")

    # A machine dies and another one joins, while trials of Ann's run.
    cluster.mark(1, 2)
    lost = cluster.host(2)
    cluster.kill(2)
    cluster.begin_node(3, """--resources={"licence": 1}""")
    cluster.mark(3)
    told = re.compile(Says.lost.format(re.escape(lost)), re.M)
    cluster.wait(3)
    zeta = search_that_fits_nowhere(bob, there)
    wait_for(lambda: told.search(team.printed("anns")), PATIENCE, "the line about the machine")

    # Ann stops hers, looks at it, and continues it.
    assert Says.stopped in ann.call("stop", "anns", *there)
    wait_for(lambda: "Next:" in team.printed("anns"), PATIENCE, "the end of Ann's first turn")
    before = ended(urls["ann"], "anns")
    assert before < TRIALS
    cluster.mark(1, 3, there=False)
    goes_on = ann.start("resume", "anns", *there, "--ledger", urls["ann"])
    left_nothing(zeta, team)
    assert "anns" in ann.call("status", "anns", *there)
    listed = bob.call("status", *there)
    assert "anns" in listed
    assert "bobs" in listed
    goes_on.said(seconds=PATIENCE)
    for name, trials, url in (("anns", TRIALS, urls["ann"]), ("bobs", 3, urls["bob"])):
        wait_for(lambda n=name, u=url, t=trials: ended(u, n) == t, PATIENCE, f"the end of {name}")
        ends = 2 if name == "anns" else 1
        wait_for(lambda n=name, e=ends: team.printed(n).count("Next:") == e, PATIENCE, "its end")

    # Everything is where it should be, and nothing else is.
    front = ann.json("front", "anns", *there)
    assert front["search"] == "anns"
    assert front["points"]
    assert re.search(r"^bobs +\w+ +3(/3)? ", bob.call("status", "bobs", *there), re.M)
    entries = read_entries(urls["bob"], "anns")
    assert len(entries) == TRIALS
    assert {entry.state for entry in entries} == {TrialState.COMPLETE}
    assert team.objects.files() == [], "checkpoints of trials that have ended"
    runs_are_there(team.tracking, [TRIALS, 3])
    for name in ("anns", "bobs"):
        log = (ann if name == "anns" else bob).call("logs", name, *there)
        assert "Front of" in log
        assert not [word for word in Says.noise if word in team.printed(name)]
    home = cluster.home_of(0) / "bitfront-runs"
    assert not (home / "zeta").exists()
    assert not list(home.rglob("*.part"))


def search_that_fits_nowhere(person, there):
    options = ("--set", "resources.custom={zeta: 1}", "--name", "zeta", "--home", "/home/ray/other")
    return person.start("submit", "bobs.yaml", *there, *options, "--installed")


def left_nothing(submitted, team):
    said = submitted.said(code=2, seconds=PATIENCE)
    assert "search 'zeta' did not begin" in said
    assert "a trial wants 1 CPU and 1 zeta, and no node has that" in said
    assert """nodes have licence; to start one with it: ray start""" in said
    there = team.cluster.home_of(0) / "other"
    wait_for(lambda: not there.exists(), 10, "the end of the folder of a refused search")


def runs_are_there(uri, trials):
    """MLflow has a run of every search, and one of every trial below it."""
    client = MlflowClient(uri)
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert {run.info.status for run in runs} == {"FINISHED"}
    below = Counter(run.data.tags.get("mlflow.parentRunId") for run in runs)
    assert below.pop(None) == len(trials)
    assert sorted(below.values()) == sorted(trials)
