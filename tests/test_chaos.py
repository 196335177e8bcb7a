"""Searches that something happens to: real nodes, servers, disks and signals. What must hold
afterwards is in `testbed.invariants`; `benchmarks.chaos` does the same at random moments."""

from pathlib import Path

import pytest

from testbed import faulty, warm
from testbed.invariants import broken, undisturbed
from testbed.rig import (
    Cluster,
    User,
    free_port,
    kill,
    mounts_work,
    tracking_server,
    wait_for,
)

pytestmark = pytest.mark.slow

SEARCH = """\
name: chaos
task:
  dataset: digits
  model: {name: mlp, depth: 4, width: 16}
  epochs: 3
  batch_size: 64
  subset: 300
  optimizer: {name: adam, lr: 0.01}
space:
  method: [bnn, bc]
  plan: {per: layer, levels: [F, B]}
  optimizer.lr: {float: [0.003, 0.03], log: true}
search: {sampler: random, trials: 8, seed: 0}
resources: {cpus: 1}
"""


@pytest.fixture(scope="module")
def reference():
    """The same search with nothing in its way."""
    return undisturbed(SEARCH)


@pytest.mark.timeout(900)
def test_a_search_on_three_nodes_survives_the_loss_of_one(tmp_path, reference):
    cluster = Cluster(tmp_path / "cluster", head_cpus=0, python=warm.python())
    faulty.tell(cluster.folder, pace=0.5)
    user = User(tmp_path / "user", SEARCH, cluster.env, cluster.address, python=warm.python())
    try:
        cluster.start_head()
        cluster.start_node(1)
        cluster.start_node(2)
        process = user.start("run", "chaos.yaml")

        def in_the_middle():
            ended = {e.id for e in user.entries() if e.state != "running"}
            half_way = [row for row in faulty.audit(cluster.folder) if row.epoch == 2]
            busy = {row.worker for row in half_way if row.trial not in ended}
            return ended and busy & set(cluster.trial_workers(2))

        wait_for(in_the_middle, 400, "a trial in the middle of its training", process)
        cluster.kill(2)
        out, _ = process.communicate(timeout=200)
        assert process.returncode == 0, out
        store = f"sqlite:///{user.folder / 'runs' / 'mlflow.db'}"
        assert broken(user, reference, cluster, store) == []
        assert any(e.lives for e in user.entries())
    finally:
        user.leave()
        cluster.stop()


@pytest.mark.timeout(900)
def test_a_search_survives_its_driver_a_damaged_checkpoint_a_silent_trial_and_no_tracking_server(
    tmp_path, reference
):
    """First without a tracking server, until the driver is killed and a checkpoint cut short; then
    resumed with the server, which is told everything. One trial hangs in both turns."""
    cluster = Cluster(tmp_path / "cluster", head_cpus=2, python=warm.python())
    silent = reference[1].id
    faulty.tell(cluster.folder, pace=0.3, **{silent: {"kind": "hang", "epoch": 2}})
    port = free_port()
    user = User(tmp_path / "user", SEARCH, cluster.env, cluster.address, python=warm.python())
    options = [f"tracking.uri=http://127.0.0.1:{port}", "resources.report_within=20"]
    options += ["resources.retries=0"]
    try:
        cluster.start_head()
        words = [word for option in options for word in ("--set", option)]
        process = user.start("run", "chaos.yaml", *words)
        wait_for(
            lambda: user.ended() >= 2 and user.checkpoints(),
            400,
            "two trials ended and a checkpoint of another",
            process,
        )
        kill(process.pid)
        process.wait()
        damaged = user.checkpoints()[0]
        damaged.write_bytes(damaged.read_bytes()[:100])
        with tracking_server(tmp_path, port):
            process = user.start("resume", "chaos")
            out, _ = process.communicate(timeout=300)
            assert process.returncode == 0, out
        store = f"sqlite:///{tmp_path / 'server.db'}"
        hung = {silent: "hung"}
        assert broken(user, reference, cluster, store, hung) == []
    finally:
        user.leave()
        cluster.stop()


@pytest.mark.skipif(not mounts_work(), reason="this machine lets us mount nothing")
@pytest.mark.timeout(900)
def test_a_search_on_nodes_with_disks_of_their_own_leaves_no_checkpoint_there(tmp_path, reference):
    """No storage is shared: a worker is killed, and what it leaves is out of the driver's reach."""
    runs = tmp_path / "user" / "runs"
    runs.mkdir(parents=True)
    mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs tmpfs {runs} && exec "$@"', "sh"]
    cluster = Cluster(tmp_path / "cluster", head_cpus=0, inside=lambda node: mount if node else [])
    faulty.tell(cluster.folder, pace=0.3)
    user = User(tmp_path / "user", SEARCH, cluster.env, cluster.address, python=warm.python())
    try:
        cluster.start_head()
        stranger = User(
            tmp_path, SEARCH, {**cluster.env, "RAY_AUTH_TOKEN": "0" * 64}, python=warm.python()
        )
        said = stranger.call("run", "chaos.yaml", "--address", cluster.address, code=2)
        assert "refuses the token of the variable RAY_AUTH_TOKEN" in said
        cluster.start_node(1, cpus=2)
        there = Path(f"/proc/{cluster.nodes[1].pid}/root{runs}")
        process = user.start("run", "chaos.yaml")
        wait_for(lambda: list(there.glob("chaos/trials/*/*.pt")), 200, "a checkpoint", process)
        kill(cluster.trial_workers()[0])
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, out
        store = f"sqlite:///{runs / 'mlflow.db'}"
        assert broken(user, reference, cluster, store) == []
        assert (there / "chaos").exists()
        assert not (there / "chaos" / "trials").exists()
        assert any(e.lives for e in user.entries())
    finally:
        user.leave()
        cluster.stop()
