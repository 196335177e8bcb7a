"""What fits on a cluster, decided on paper and then by a real Ray with logical GPUs."""

import pickletools
import sys
import threading
from collections import defaultdict
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfront.search.cluster.resources import STEP, Cluster, fitting, needs, packed_share
from bitfront.search.config.schema import ResourceSpec
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.session.session import Session
from bitfront.trainables.errors import UserError
from testbed import warm

pytestmark = pytest.mark.slow

CPUS = {"CPU": 2.0, "memory": 8e9, "node:10.0.0.1": 1.0}
GPUS = {"CPU": 8.0, "GPU": 2.0, "accelerator_type:T4": 1.0}


def want(gpus=0.0, **keys):
    return needs(ResourceSpec(gpus=gpus, **keys), gpus)


def test_a_trial_runs_on_one_node():
    three = Cluster((CPUS, CPUS, CPUS))
    assert three.slots(want(cpus=2)) == 3
    with pytest.raises(UserError) as error:
        three.check(want(cpus=4))
    assert "a trial wants 4 CPUs, and no node has that" in str(error.value)
    assert "3 nodes with 2 CPUs" in str(error.value)
    assert "one node, however many" in str(error.value)


def test_fractions_fill_each_gpu_and_cross_none():
    cluster = Cluster((CPUS, GPUS))
    assert cluster.slots(want(gpus=0.25, cpus=0.5)) == 8
    # Two GPUs have 0.8 left after one trial of 0.6 each, but no GPU has.
    assert cluster.slots(want(gpus=0.6, cpus=0.5)) == 2
    assert cluster.slots(want(gpus=2)) == 1
    assert cluster.slots(want(gpus=1, cpus=8)) == 1, "the CPUs of the node are the limit"


def test_the_type_of_gpu_and_custom_resources_must_be_there():
    cluster = Cluster((CPUS, GPUS, {"CPU": 4.0, "licence": 1.0}))
    assert cluster.slots(want(gpus=1, accelerator="T4")) == 2
    with pytest.raises(UserError, match=r"1 GPU \(A100\).*2 GPUs \(T4\)"):
        cluster.check(want(gpus=1, accelerator="A100"))
    assert cluster.slots(want(cpus=1, custom={"licence": 0.5})) == 2
    with pytest.raises(UserError, match="1 disk") as error:
        cluster.check(want(custom={"disk": 1}))
    assert "nodes have licence; " in error.value.hint
    assert """--resources='{"disk": 1}'""" in error.value.hint
    with pytest.raises(UserError) as error:
        Cluster((CPUS,)).check(want(custom={"zeta": 0.5}))
    assert "no node has any; " in error.value.hint
    assert """--resources='{"zeta": 0.5}'""" in error.value.hint
    with pytest.raises(UserError) as error:
        cluster.check(want(cpus=99, custom={"licence": 1}))
    assert "lower resources.cpus" in error.value.hint, "the licence is there"


def test_where_nodes_may_come_it_is_a_warning_and_trials_wait_for_them():
    growing = Cluster(({"CPU": 0.0},), grows=True)
    assert "waiting for the autoscaler" in growing.check(want(gpus=1))
    assert growing.room(want(gpus=1)) == 1
    assert Cluster((GPUS,), grows=True).room(want(gpus=1)) == 4, "as many as another node takes"
    assert Cluster((GPUS,)).room(want(gpus=1)) == 2
    tried_again = Cluster((GPUS,), grows=True, coming=1)
    assert tried_again.room(want(gpus=1)) == 2, "a lost machine comes back by itself, or not"


def test_gpus_that_no_trial_would_use_are_told_of():
    here = Cluster(({"CPU": 8.0, "GPU": 2.0},))
    assert "the cluster has 2 GPUs" in here.unused_gpus({"CPU": 1.0})
    assert here.unused_gpus({"CPU": 1.0, "GPU": 0.25}) is None
    assert Cluster(({"CPU": 8.0},)).unused_gpus({"CPU": 1.0}) is None
    empty = Cluster(({"CPU": 0.0},), grows=True, may_have={"CPU": 64.0, "GPU": 8.0})
    assert "may have GPUs: to use them, resources.gpus" in empty.unused_gpus({"CPU": 1.0})


def test_what_no_node_that_may_come_has_is_an_error_and_no_endless_wait():
    most = {"CPU": 80.0, "GPU": 10.0, "accelerator_type:A10G": 10.0, "licence": 1.0}
    growing = Cluster(({"CPU": 0.0},), grows=True, may_have=most)
    assert "waiting" in growing.check(want(gpus=1, accelerator="A10G", custom={"licence": 1}))
    for need in (
        want(gpus=1, accelerator="A100"),
        want(custom={"license": 1}),
        want(cpus=100),
    ):
        with pytest.raises(UserError, match="no node the autoscaler may add has"):
            growing.check(need)
    silent = Cluster(({"CPU": 0.0},), grows=True, may_have={"CPU": 80.0, "GPU": 10.0})
    assert "waiting" in silent.check(want(gpus=1, accelerator="A100")), "it knows no types"


@given(st.integers(1, 80 * 2**30), st.integers(2**30, 80 * 2**30))
def test_packed_trials_fit_with_a_margin(peak, total):
    share = packed_share(peak, total)
    on_each = fitting({"CPU": 99.0, "GPU": 1.0}, {"CPU": 1.0, "GPU": share})
    assert 0 < share <= 1
    assert on_each == 1 or on_each * peak * 1.2 <= total
    assert abs(share - 1 / on_each) <= STEP
    if on_each < 16:
        assert (on_each + 1) * peak * 1.2 > total, "no more would fit"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"gpus": 1.5}, "whole number"),
        ({"gpus": "all"}, "auto"),
        ({"accelerator": "T4"}, "give gpus"),
        ({"custom": {"GPU": 1}}, "key of its own"),
    ],
)
def test_resources_that_cannot_be_asked_for_are_mistakes(keys, told):
    with pytest.raises(ValueError, match=told):
        ResourceSpec(**keys)


def test_the_issues_spelling_of_auto_gets_the_right_word(make_config):
    with pytest.raises(UserError, match="did you mean 'gpus'"):
        make_config("resources.gpu=auto")


class Watched(Session):
    """A session that remembers who trained when."""

    def __init__(self, *args):
        super().__init__(*args)
        self.lock = threading.Lock()
        self.running_now, self.most, self.asked = set(), 0, {}
        self.workers = defaultdict(set)

    def trial_config(self, entry):
        given = super().trial_config(entry)
        self.asked[entry.id] = given["gpus"]
        return given

    def report(self, trial_id, result):
        self.workers[trial_id].add(result["worker"])
        self.running_now.add(trial_id)
        self.most = max(self.most, len(self.running_now))
        super().report(trial_id, result)

    def finish(self, trial_id, result):
        self.running_now.discard(trial_id)
        super().finish(trial_id, result)


@pytest.fixture(scope="module")
def meeting(tmp_path_factory):
    """A folder: where it has a file `wait`, each worker waits in a trial for a second one."""
    return tmp_path_factory.mktemp("meeting")


@pytest.fixture(scope="module")
def logical_gpus(meeting):
    """A head without GPUs and a node with a logical one: nothing here has CUDA."""
    import ray
    from ray.cluster_utils import Cluster as RayCluster

    import bitfront.search.cluster.tuner  # noqa: F401 (sets what Ray reads when it starts)

    with mock.patch.object(sys, "executable", warm.python()):  # which starts the workers
        nodes = RayCluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "num_gpus": 0,
                "object_store_memory": 100_000_000,
                "include_dashboard": False,
            },
        )
        nodes.add_node(num_cpus=2, num_gpus=1, resources={"licence": 1}, object_store_memory=10**8)

    def set_up():  # runs in every worker
        import os
        import time

        from bitfront.trainables.worker import gpu, worker

        # A GPU of 10 GB of which a trial takes 4.
        gpu.gpu_memory = lambda device: (4 * 10**9, 10 * 10**9)
        step = worker.Worker.step

        def meet(self):
            if (meeting / "wait").exists():
                (meeting / f"worker-{os.getpid()}").touch()
                end = time.monotonic() + 60
                while len(list(meeting.glob("worker-*"))) < 2 and time.monotonic() < end:
                    time.sleep(0.05)
            return step(self)

        worker.Worker.step = meet

    hook = {"worker_process_setup_hook": set_up}
    ray.init(address=nodes.address, runtime_env=hook, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture
def searched(logical_gpus, make_space, tmp_path):
    """Run the tiny search with these settings, once or again."""
    from bitfront.search.cluster.tuner import run_trials

    def run(*assignments, folder="one"):
        config, space = make_space(*assignments)
        session = Watched(config, space, SearchFolder(tmp_path / folder), None)
        run_trials(session)
        assert all(e.state == "complete" for e in session.ledger.entries.values())
        return session

    (tmp_path / "one").mkdir()
    return run


def test_auto_measures_the_first_trial_and_packs_those_after_it(searched, meeting):
    settings = "resources={gpus: auto, cpus: 0.5, custom: {licence: 0.1}}"
    session = searched(settings, "search.trials=5")
    shares = list(session.asked.values())
    assert shares[0] == 1.0
    assert shares[-1] == 0.5, "10 GB hold two trials of 4, with a margin"
    assert session.ledger.noted("gpu_share") == {"gpus": 0.5, "peak": 4e9, "total": 1e10}
    assert session.most <= 2
    (meeting / "wait").touch()
    again = searched(settings, "search.trials=11")
    (meeting / "wait").unlink()
    assert set(again.asked.values()) == {0.5}, "a later turn does not measure again"
    # The first worker ended no trial before the second was on the same GPU.
    assert len(set().union(*again.workers.values())) == 2


def test_whole_gpus_wait_for_one_another(searched):
    session = searched("resources.gpus=1", "search.trials=3")
    assert len(session.ledger.entries) == 3
    assert session.most == 1


def test_a_search_no_node_can_take_is_an_error_before_the_first_trial(searched):
    with pytest.raises(UserError, match="a trial wants 3 CPUs"):
        searched("resources.cpus=3")
    with pytest.raises(UserError, match="1 node with 1 CPU, 1 node with 2 CPUs and 1 GPU"):
        searched("resources.gpus=2")


def test_auto_waits_for_gpus_that_an_autoscaler_may_bring():
    """A cluster that is scaled to zero must not train on the CPUs of its GPU nodes."""
    head = {"CPU": 0.0}
    assert Cluster((head,), grows=True, may_have={"CPU": 64, "GPU": 8}).offers_gpus
    assert not Cluster((head,), grows=True, may_have={"CPU": 64}).offers_gpus
    assert not Cluster((CPUS,)).offers_gpus
    assert Cluster((GPUS,)).offers_gpus
    with pytest.raises(UserError, match="write how many a trial takes"):
        _ = Cluster((head,), grows=True).offers_gpus


def test_what_was_measured_once_is_taken_up_on_a_cluster_without_nodes(make_space, tmp_path):
    config, space = make_space("resources.gpus=auto")
    session = Session(config, space, SearchFolder(tmp_path), None)
    session.ledger.note("gpu_share", {"gpus": 0.25, "peak": 1, "total": 8})
    session.settle_gpus(Cluster(({"CPU": 0.0},), grows=True, may_have={"GPU": 8}).offers_gpus)
    assert session.gpus == 0.25


def test_auto_means_none_where_there_are_no_gpus(make_space, tmp_path):
    config, space = make_space("resources.gpus=auto")
    session = Session(config, space, SearchFolder(tmp_path), None)
    session.settle_gpus(Cluster((CPUS,)).has_gpus)
    assert session.gpus == 0.0
    assert needs(config.resources, session.gpus) == {"CPU": 1.0}


def test_a_worker_imports_no_module_of_searches():
    """Else it reads Optuna and a database's library before its first trial, for half a second."""
    from ray import cloudpickle, tune

    from bitfront.search.cluster import tuner
    from bitfront.trainables.worker.worker import Worker

    resources = ResourceSpec(gpus="auto", custom={"licence": 1}, accelerator="T4")
    request = tuner._request(resources)
    for gpus in (0.0, 0.5):
        assert request({"gpus": gpus}).required_resources == needs(resources, gpus)
    sent = cloudpickle.dumps(tune.with_resources(Worker, request))
    named = {text for _, text, _ in pickletools.genops(sent) if isinstance(text, str)}
    assert "bitfront.trainables.worker.request" in named
    assert not [name for name in named if name.startswith("bitfront.search")]
