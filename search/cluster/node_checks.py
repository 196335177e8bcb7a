"""Checks of a cluster and of the storage its nodes share, for `bitfront doctor --address`: an actor
on every node answers for it (node_probe.py). Checks of this machine are in doctor.py."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitfront.search.cluster import node_probe
from bitfront.search.cluster.checks import Check
from bitfront.search.cluster.connection import connect, leave, look
from bitfront.search.urls import redacted
from bitfront.trainables.errors import UserError
from bitfront.trainables.worker import storage as shared

NODE_SECONDS = 90.0
# How far clocks may differ: times in ledger and MLflow tell interrupted trials from running ones.
CLOCK_SECONDS = 5.0


@dataclass
class Node:
    """One node and its answers; None where it gave none."""

    address: str
    probe: Any
    facts: dict[str, Any] | None = None
    clock: float | None = None


def check_cluster(address: str, storage: str | None = None) -> list[Check]:
    """Connect to the cluster, run all checks, and leave it again."""
    try:
        connect(address)
    except UserError as error:
        return [Check("cluster", "FAIL", error.message, error.hint or "")]
    try:
        resources = _resources()  # before: others may join while these answer
        nodes = _ask_nodes()
        checks = [resources, *_answers(nodes), *_versions(nodes), _clock(nodes)]
        if storage is not None:
            checks.append(check_storage(storage, nodes))
        return checks
    finally:
        leave()


def _ask_nodes() -> list[Node]:
    """The nodes with their answers. Actors start on all nodes before any answer is waited for."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(node_probe)
    source = Path(shared.__file__).read_text(encoding="utf-8")
    probe = ray.remote(num_cpus=0)(node_probe.NodeProbe)
    nodes = []
    for node in (n for n in ray.nodes() if n["Alive"]):
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        actor = probe.options(scheduling_strategy=place).remote(source)
        nodes.append(Node(node["NodeManagerAddress"], actor))
    asked = [(node, node.probe.facts.remote()) for node in nodes]
    deadline = time.monotonic() + NODE_SECONDS
    for node, answer in asked:
        node.facts = _answer(answer, deadline)
        if node.facts is not None:
            node.clock = _clock_difference(node.probe)
    return nodes


def _answer(reference: Any, deadline: float) -> Any:
    import ray

    try:
        return ray.get(reference, timeout=max(1.0, deadline - time.monotonic()))
    except Exception:  # late, not started, or lost: the node does not answer
        return None


def _clock_difference(probe: Any) -> float | None:
    """Seconds that the node's clock is ahead of ours; 0 where the difference is less than half the
    duration of the request, which is its uncertainty."""
    before = time.time()
    theirs = _answer(probe.now.remote(), time.monotonic() + 10)
    after = time.time()
    if theirs is None:
        return None
    ahead = theirs - (before + after) / 2
    unsure = (after - before) / 2
    return 0.0 if abs(ahead) <= unsure else ahead


def _resources() -> Check:
    there = look()
    found = there.text()
    if there.coming:
        machines = "machines are" if there.coming > 1 else "machine is"
        found += f"; {there.coming} more {machines} being set up, or tried again"
    elif there.grows:
        found += "; an autoscaler adds nodes"
    if not there.grows and there.total("CPU") == 0:
        return Check("resources", "FAIL", found, "no trial fits: add workers with ray start")
    return Check("resources", "PASS", found)


def _answers(nodes: list[Node]) -> Iterator[Check]:
    silent = [node.address for node in nodes if node.facts is None]
    if silent:
        yield Check(
            "nodes",
            "FAIL",
            f"{', '.join(silent)} did not answer in {NODE_SECONDS:g} s",
            "ray status shows what is wrong there; ports between nodes must be open",
        )
    else:
        yield Check("nodes", "PASS", f"{len(nodes)} answer")


def _versions(nodes: list[Node]) -> Iterator[Check]:
    """Whether all nodes have our version of every package, of Python up to its patch number."""
    mine = node_probe.NodeProbe("").facts()["versions"]
    for package, here in mine.items():
        found = Counter(n.facts["versions"][package] for n in nodes if n.facts is not None)
        versions = ", ".join(f"{version} ({count})" for version, count in found.items())
        same = {_without_patch(v) if package == "python" else v for v in (here, *found)}
        if package == "bitfront" and "missing" in found:
            advice = "bitfront submit sends the code along; else: pip install -e . on every node"
            yield Check("bitfront on all nodes", "WARN", versions, advice)
        elif len(same) > 1:
            advice = f"install {package} {here} everywhere, or use what the cluster has here"
            yield Check(f"{package} on all nodes", "FAIL", f"{versions}; here {here}", advice)
        else:
            yield Check(f"{package} on all nodes", "PASS", versions)


def _without_patch(version: str) -> str:
    return version.rpartition(".")[0]


def _clock(nodes: list[Node]) -> Check:
    ahead = {n.address: n.clock for n in nodes if n.clock is not None}
    worst = max(map(abs, ahead.values()), default=0.0)
    if worst > CLOCK_SECONDS:
        late = ", ".join(f"{a}: {s:+.1f} s" for a, s in ahead.items() if abs(s) > CLOCK_SECONDS)
        return Check("clocks", "FAIL", late, "run an NTP client on every node: timedatectl")
    return Check("clocks", "PASS", f"{worst:.2f} s apart at most")


def check_storage(storage: str, nodes: list[Node]) -> Check:
    """Whether every node reads a file written here, and writes one that is read here."""
    name, shown = "storage", redacted(storage)
    folder = shared.join(storage, f"bitfront-doctor-{secrets.token_hex(4)}")
    known = shared.join(folder, "file-driver")
    try:
        shared.write(known, b"here")
    except Exception as error:  # every file system has faults of its own
        fault = f"{shown} cannot be written: {type(error).__name__}: {error}"
        return Check(name, "FAIL", fault, "does it exist, and may this user write there?")
    try:
        asked = [
            (node, place, node.probe.shares.remote(known, place))
            for number, node in enumerate(nodes)
            if node.facts is not None
            for place in [shared.join(folder, f"file-{number}")]
        ]
        deadline = time.monotonic() + NODE_SECONDS
        faults = [_fault(node, place, answer, deadline) for node, place, answer in asked]
        wrong = [fault for fault in faults if fault is not None]
    finally:
        shared.forget(folder)
    if wrong:
        advice = "mount one folder on all nodes, or give an object store: s3://BUCKET/FOLDER"
        return Check(name, "FAIL", f"{shown}: {'; '.join(wrong)}", advice)
    there = f"{len(asked)} node{'s' if len(asked) != 1 else ''}"
    return Check(name, "PASS", f"{shown}: read and written from {there} and here")


def _fault(node: Node, place: str, answer: Any, deadline: float) -> str | None:
    import ray

    try:
        fault = ray.get(answer, timeout=max(1.0, deadline - time.monotonic()))
    except Exception as error:
        fault = type(error).__name__
    if fault is None and shared.read(place) is None:
        fault = "what it wrote is not seen here: not shared"
    return None if fault is None else f"{node.address} {fault}"
