"""What a Ray cluster has and what a trial needs of it: whether a trial can ever be scheduled, and
how many fit at once. Pure functions; connection.py asks Ray."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bitfront.search.config.schema import ResourceSpec
from bitfront.search.submission import FOR_MACHINES, FOR_NODES
from bitfront.trainables.errors import UserError

ACCELERATOR = "accelerator_type:"
OF_RAY = ("CPU", "GPU", "memory", "object_store_memory")
# Ray counts resources in steps of this size; the rest is lost to rounding.
STEP = 1e-4
# How much of an accelerator type a trial asks for. A node has 1 of its type, which so small amounts
# never use up.
TOUCH = 0.001
# Factor on the measured memory of a trial, so that a somewhat larger trial fits too.
MARGIN = 1.2
MOST_ON_ONE_GPU = 16

Amounts = Mapping[str, float]


def needs(resources: ResourceSpec, gpus: float) -> dict[str, float]:
    """The resources one trial asks Ray for, by Ray's names; `gpus` is the number decided for it."""
    asked = {"CPU": float(resources.cpus), "GPU": float(gpus), **resources.custom}
    if resources.accelerator is not None and gpus > 0:
        asked[ACCELERATOR + resources.accelerator] = TOUCH
    return {name: amount for name, amount in asked.items() if amount > 0}


@dataclass(frozen=True)
class Cluster:
    """The nodes that are there, and whether an autoscaler may add others."""

    nodes: tuple[Amounts, ...]
    grows: bool = False
    may_have: Amounts | None = None
    """the resources of all nodes an autoscaler may add together; None where it does not say"""
    coming: int | None = None
    """how many machines of one's own are being set up; None where an autoscaler starts machines"""

    @property
    def has_gpus(self) -> bool:
        return any(node.get("GPU", 0) > 0 for node in self.nodes)

    @property
    def offers_gpus(self) -> bool:
        """Whether there are GPUs or the autoscaler may add some: a cluster scaled to zero has none
        yet."""
        if self.has_gpus or not self.grows:
            return self.has_gpus
        if self.may_have is None:
            raise UserError(
                "no GPU is there yet, and the autoscaler does not say whether it has any",
                "write how many a trial takes in resources.gpus (1, a fraction, 0), "
                "or let a node with GPUs come up first",
            )
        return self.may_have.get("GPU", 0) > 0

    def total(self, name: str) -> float:
        return sum(node.get(name, 0.0) for node in self.nodes)

    def slots(self, need: Amounts) -> int:
        """How many trials fit at once, node by node."""
        return sum(fitting(node, need) for node in self.nodes)

    def room(self, need: Amounts) -> int:
        """How many trials may be asked for: those that fit and, where those that wait bring a node,
        as many as it would take."""
        brings = self.grows and self.coming is None  # machines of one's own come by themselves
        waiting = max((fitting(node, need) for node in self.nodes), default=0) if brings else 0
        return max(1, self.slots(need) + waiting)

    def check(self, need: Amounts) -> str | None:
        """Raise where no trial can ever start; return a warning where one waits for a new node."""
        if self.slots(need) > 0:
            return None
        wanted = f"a trial wants {amounts_text(need)}, and no node has that"
        never = self._never(need)
        if never:
            raise UserError(
                f"a trial wants {amounts_text(need)}, and no node the autoscaler may add has "
                f"{' or '.join(never)}: Ray has {self.text()}",
                "the cluster's file says what nodes there may be; see resources in the YAML",
            )
        if self.grows:
            awaited = FOR_NODES if self.coming is None else FOR_MACHINES
            return f"{wanted} yet: {awaited}; the cluster has {self.text()}"
        hint = self._without_custom(need) or (
            "lower resources.cpus or resources.gpus, or use a larger cluster"
        )
        if all(self.total(name) >= amount for name, amount in need.items()):
            hint = "a trial runs on one node, however many there are: lower resources"
        raise UserError(f"{wanted}: Ray has {self.text()}", hint)

    def unused_gpus(self, need: Amounts) -> str | None:
        """A warning where the cluster has GPUs, or may get some, and a trial takes none."""
        most = (self.may_have or {}).get("GPU", 0.0) if self.grows else 0.0
        count = max(self.total("GPU"), most)
        if need.get("GPU", 0.0) > 0 or count <= 0:
            return None
        there = f"has {_counted(count, 'GPU')}" if count == self.total("GPU") else "may have GPUs"
        return (
            f"warning: trials train on CPUs, and the cluster {there}: to use them, resources.gpus "
            "in the YAML, or --set resources.gpus=auto"
        )

    def _without_custom(self, need: Amounts) -> str | None:
        """What to do where it is custom resources that are missing: what nodes have of that kind,
        and how a node is started with one."""
        missing = {
            name: amount
            for name, amount in need.items()
            if _is_custom(name) and all(node.get(name, 0.0) < amount for node in self.nodes)
        }
        if not missing:
            return None
        there = sorted({name for node in self.nodes for name in node if _is_custom(name)})
        have = f"nodes have {', '.join(there)}" if there else "no node has any"
        wanted = json.dumps({n: int(a) if a == int(a) else a for n, a in missing.items()})
        return (
            f"resources.custom is what nodes were started with: {have}; to start one with it: "
            f"ray start --address=HEAD:6379 --resources='{wanted}'"
        )

    def _never(self, need: Amounts) -> list[str]:
        """The resources of `need` that the largest cluster would not have, as far as the autoscaler
        says. Some autoscalers do not report accelerator types."""
        if not self.grows or self.may_have is None:
            return []
        most = {name: max(n, self.total(name)) for name, n in self.may_have.items()}
        types = any(name.startswith(ACCELERATOR) for name in most)
        return [
            name
            for name, amount in need.items()
            if most.get(name, self.total(name)) < amount
            and (types or not name.startswith(ACCELERATOR))
        ]

    def text(self) -> str:
        """`2 nodes with 4 CPUs, 1 node with 8 CPUs and 1 GPU (A100)`."""
        kinds = Counter(amounts_text(node) for node in self.nodes)
        texts = [f"{n} node{'s' if n > 1 else ''} with {kind}" for kind, n in sorted(kinds.items())]
        return ", ".join(texts) or "no node"


def has_place(free: Iterable[Amounts], need: Amounts) -> bool:
    """Whether another trial may start on a node with so much left."""
    return any(all(have.get(n, 0.0) + STEP >= a for n, a in need.items()) for have in free)


def check_here(resources: ResourceSpec) -> None:
    """Raise where this machine has fewer CPUs than one trial needs. Other resources are known only
    once Ray has started."""
    node = {"CPU": float(os.cpu_count() or 1)}
    Cluster((node,)).check({"CPU": float(resources.cpus)} if resources.cpus else {})


def fitting(node: Amounts, need: Amounts) -> int:
    """How many trials fit on a node. A fraction of a GPU must come from one GPU: what is left of
    two GPUs cannot be combined."""
    counts = []
    for name, amount in need.items():
        have = node.get(name, 0.0)
        if name == "GPU" and amount < 1:
            counts.append(int(have) * int((1 + STEP) / amount))
        else:
            counts.append(int((have + STEP) / amount))
    return min(counts, default=0)


def amounts_text(amounts: Amounts) -> str:
    """`4 CPUs and 1 GPU (A100)`; what Ray keeps for itself is left out."""
    types = [n.removeprefix(ACCELERATOR) for n in amounts if n.startswith(ACCELERATOR)]
    texts = [_counted(amounts.get("CPU", 0.0), "CPU")]
    if amounts.get("GPU", 0.0) > 0:
        texts.append(_counted(amounts["GPU"], "GPU") + (f" ({', '.join(types)})" if types else ""))
    texts += [f"{amount:g} {name}" for name, amount in amounts.items() if _is_custom(name)]
    return " and ".join(texts)


def _is_custom(name: str) -> bool:
    """Whether a resource is one that somebody has made up, none of Ray's own."""
    return name not in OF_RAY and not name.startswith((ACCELERATOR, "node:"))


def _counted(amount: float, word: str) -> str:
    return f"{amount:g} {word}" if amount == 1 else f"{amount:g} {word}s"


def packed_share(peak: int, total: int) -> float:
    """The share of a GPU per trial, 1/k with the largest k that fits, where one trial took `peak`
    of the GPU's `total` bytes."""
    fit = int(total / (MARGIN * max(1, peak)))
    k = max(1, min(MOST_ON_ONE_GPU, fit))
    return math.floor(1 / (k * STEP)) * STEP if k > 1 else 1.0
