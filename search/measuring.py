"""Measuring networks for a device table, in this process or on a node of a cluster that was started
with a certain custom resource. How it is measured: `bitfront.trainables.runtime.measuring`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.search.config.checks.device import networks
from bitfront.search.config.errors import KeyProblem
from bitfront.spaces.space import Space
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.costs.devices import DeviceTable, NetworkTimes, file_of, usual_name
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code.bundles import Bundle, bundle, unpack
from bitfront.trainables.own_code.reference import is_reference, shown
from bitfront.trainables.runtime.machine import cpu_name
from bitfront.trainables.task import Task

if TYPE_CHECKING:
    from bitfront.trainables.runtime.planned import Subject

# How much of a custom resource measuring asks for: it needs the node, not what is on it.
TOUCH = 0.001

Found = tuple[str, dict[str, NetworkTimes]]
"""(CPU, times by identity of the network)."""


@dataclass(frozen=True)
class Measuring:
    """What is measured, and how."""

    networks: Sequence[tuple[str, Subject]]
    levels: str
    batch: int
    threads: int
    seconds: float
    checks: int = 20

    def run(self, told: Callable[[str], None]) -> Found:
        """Measure in this process."""
        from bitfront.trainables.runtime.measuring import measure

        found = {}
        for number, (name, subject) in enumerate(self.networks, 1):
            place = f"{number} of {len(self.networks)}: " if len(self.networks) > 1 else ""
            layers = len(subject.layers)
            told(f"{place}{name}: measuring {layers} layers for {self.seconds:g} s of computation")
            found[subject.table.identity] = measure(
                subject, name, self.levels, self.batch, self.threads, self.seconds, self.checks
            )
        return cpu_name(), found


def different_networks(space: Space, file: str) -> list[Task]:
    """A task of every network of a space; a UserError where there are too many."""
    try:
        tasks = networks(space)
    except KeyProblem as problem:
        dotted = ".".join(map(str, problem.path))
        raise UserError(f"{file} {dotted}: {problem.message}") from None
    return list({task_cost_table(task).identity: task for task in tasks}.values())


def called(model: str, params: Mapping[str, Any]) -> str:
    """The name of a network for people: with the parameters that were given."""
    return " ".join([shown(model), *(f"{key}={value}" for key, value in params.items())])


def table_of(
    cpu: str, threads: int, batch: int, home: Path, out: str | None = None
) -> tuple[DeviceTable, Path]:
    """The table to which networks are added, a new one where there is none, and its file: `out`, or
    the usual one. A UserError where the file is of another machine."""
    path = file_of(out or usual_name(cpu, threads, batch), home)
    new = DeviceTable(path.stem, cpu, threads, batch)
    if not path.exists():
        return new, path
    there = DeviceTable.read(path)
    if (there.cpu, there.threads, there.batch) != (cpu, threads, batch):
        raise UserError(
            f"{path} is of {there.describe()}, not of {new.describe()}",
            "give this table another name: --out NAME",
        )
    return replace(there, name=path.stem), path


def measure_here(work: Measuring, told: Callable[[str], None]) -> Found:
    """Measure on this machine."""
    return work.run(told)


def measure_on(work: Measuring, resource: str, address: str, told: Callable[[str], None]) -> Found:
    """Measure on a node of the cluster at `address` that has this custom resource; a UserError
    where no node has it."""
    from bitfront.search.cluster.connection import connect, leave

    left = connect(address)
    try:
        import ray

        told(f"measuring on a node with {resource}; layers wait until it is free")
        options = task_options(work, resource, ray.nodes())
        remote = ray.remote(_run_there).options(**options)
        code = bundle([s.model for _, s in work.networks if is_reference(s.model)])
        return ray.get(remote.remote(work, code))
    finally:
        if left:
            leave()


def task_options(work: Measuring, resource: str, nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How Ray is asked for the node: as many CPUs as threads, so that no trial runs there on the
    same cores, and a touch of the resource."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    if not any(resource in have for have in alive):
        own = {"CPU", "GPU", "memory", "object_store_memory"}
        custom = {n for have in alive for n in have if n not in own and ":" not in n}
        there = f"nodes have {', '.join(sorted(custom))}" if custom else "no node has any"
        raise UserError(
            f"--on {resource}: no node was started with it; {there}",
            f"ray start --address=HEAD:6379 --resources='{{\"{resource}\": 1}}'",
        )
    fitting = [have for have in alive if resource in have and have.get("CPU", 0) >= work.threads]
    if not fitting:
        raise UserError(f"--on {resource}: no such node has {work.threads} CPUs for --threads")
    return {"num_cpus": work.threads, "resources": {resource: TOUCH}, "max_retries": 0}


def _run_there(work: Measuring, code: Bundle) -> Found:
    """What the node does."""
    unpack(code)
    return work.run(lambda _text: None)
