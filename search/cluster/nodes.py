"""Checks of a cluster and of what its nodes share, for `bitfront doctor --address`: each node is
asked itself, by an actor that is sent there."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitfront.search.cluster import node_probe
from bitfront.search.cluster.doctor import Check
from bitfront.search.cluster.resources import connect, leave, look
from bitfront.search.ledger.disks import network_disk
from bitfront.search.urls import canonical, know, redacted, sqlite_path, with_driver
from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.worker import storage as shared

NODE_SECONDS = 90.0
# Times in ledger and MLflow are compared to tell interrupted from running: seconds matter little.
CLOCK_SECONDS = 5.0


@dataclass
class Node:
    """One node and what it said."""

    address: str
    probe: Any
    facts: dict[str, Any] | None = None
    clock: float | None = None


def check_cluster(address: str, storage: str | None = None) -> list[Check]:
    """Everything that is asked of the cluster; the connection is closed again."""
    try:
        connect(address)
    except UserError as error:
        return [Check("cluster", "FAIL", error.message, error.hint or "")]
    try:
        nodes = _ask_nodes()
        checks = [_resources(), *_answers(nodes), *_versions(nodes), _clock(nodes)]
        if storage is not None:
            checks.append(check_storage(storage, nodes))
        return checks
    finally:
        leave()


def _ask_nodes() -> list[Node]:
    """An actor on every node, all started before any is waited for."""
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
    except Exception:  # late, dead on arrival, or gone: the node does not answer
        return None


def _clock_difference(probe: Any) -> float | None:
    """Seconds the node's clock is ahead, less what the question itself took."""
    before = time.time()
    told = _answer(probe.now.remote(), time.monotonic() + 10)
    after = time.time()
    if told is None:
        return None
    ahead = told - (before + after) / 2
    unsure = (after - before) / 2
    return 0.0 if abs(ahead) <= unsure else ahead


def _resources() -> Check:
    there = look()
    grows = "; an autoscaler adds nodes" if there.grows else ""
    found = f"{there.text()}{grows}"
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
    """Every package must be the same everywhere, python up to its last number."""
    mine = node_probe.NodeProbe("").facts()["versions"]
    for package, here in mine.items():
        found = Counter(n.facts["versions"][package] for n in nodes if n.facts is not None)
        told = ", ".join(f"{version} ({count})" for version, count in found.items())
        same = {_without_patch(v) if package == "python" else v for v in (here, *found)}
        if package == "bitfront" and "missing" in found:
            advice = "bitfront submit sends the code along; else: pip install -e . on every node"
            yield Check("bitfront on all nodes", "WARN", told, advice)
        elif len(same) > 1:
            advice = f"install {package} {here} everywhere, or use what the cluster has here"
            yield Check(f"{package} on all nodes", "FAIL", f"{told}; here {here}", advice)
        else:
            yield Check(f"{package} on all nodes", "PASS", told)


def _without_patch(version: str) -> str:
    return version.rpartition(".")[0]


def _clock(nodes: list[Node]) -> Check:
    ahead = {n.address: n.clock for n in nodes if n.clock is not None}
    worst = max(map(abs, ahead.values()), default=0.0)
    if worst > CLOCK_SECONDS:
        told = ", ".join(f"{a}: {s:+.1f} s" for a, s in ahead.items() if abs(s) > CLOCK_SECONDS)
        return Check("clocks", "FAIL", told, "run an NTP client on every node: timedatectl")
    return Check("clocks", "PASS", f"{worst:.2f} s apart at most")


def check_storage(storage: str, nodes: list[Node]) -> Check:
    """Every node reads what is written here, and writes what is read here."""
    name, shown = "storage", redacted(storage)
    folder = shared.join(storage, f"bitfront-doctor-{secrets.token_hex(4)}")
    known = shared.join(folder, "file-driver")
    try:
        shared.write(known, b"here")
    except Exception as error:  # every file system has faults of its own
        told = f"{shown} cannot be written: {type(error).__name__}: {error}"
        return Check(name, "FAIL", told, "does it exist, and may this user write there?")
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
    return Check(name, "PASS", f"{shown}: read and written from {len(asked)} nodes and here")


def _fault(node: Node, place: str, answer: Any, deadline: float) -> str | None:
    import ray

    try:
        told = ray.get(answer, timeout=max(1.0, deadline - time.monotonic()))
    except Exception as error:
        told = type(error).__name__
    if told is None and shared.read(place) is None:
        told = "what it wrote is not seen here: not shared"
    return None if told is None else f"{node.address} {told}"


def check_ledger(url: str) -> Check:
    """Whether the database answers, and whether it is one that many may use."""
    from sqlalchemy import create_engine, text

    know(url)
    url, shown = canonical(url), redacted(url)
    file = sqlite_path(url)
    if file is not None:
        folder = file.parent
        if not os.access(folder, os.W_OK):
            return Check("ledger", "FAIL", f"{shown}: {folder} cannot be written", "mkdir it")
        disk = network_disk(folder)
        if disk is not None:
            advice = "SQLite corrupts on network disks: a local disk of the head, or PostgreSQL"
            return Check("ledger", "FAIL", f"{shown} is on a network disk ({disk})", advice)
    try:
        with create_engine(with_driver(url)).connect() as connection:
            connection.execute(text("SELECT 1"))
    except Exception as error:  # drivers raise types of their own; a missing one is an ImportError
        first = redacted(first_line(error))
        advice = "is the server up, may this user log in, is its driver here? "
        advice += "pip install 'bitfront[postgres]'"
        return Check("ledger", "FAIL", f"{shown}: {first}", advice)
    return Check("ledger", "PASS", f"{shown} answers")
