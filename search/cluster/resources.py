"""What a Ray cluster has and what a trial takes of it: whether trials can ever be scheduled, and
how many fit at once. Pure functions but for `connect` and `look`, which ask Ray."""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

from bitfront.search.caches import home_takes_files
from bitfront.search.cluster import head
from bitfront.search.config.schema import ResourceSpec
from bitfront.search.garbage import uncollected
from bitfront.search.session.interrupts import held_back
from bitfront.trainables.errors import UserError, first_line

OBJECT_STORE_BYTES = 256 * 1024**2
ACCELERATOR = "accelerator_type:"
# Ray counts resources in steps of this size; the rest is lost to rounding.
STEP = 1e-4
# What a node says it has of an accelerator type, and what asks for it without using it up.
TOUCH = 0.001
# A trial larger than the one that was measured must fit too.
MARGIN = 1.2
MOST_ON_ONE_GPU = 16
# How long a cluster that has just been started is given to tell whether it grows.
TELLING_SECONDS = 30.0
# How long the head of a cluster is given to answer.
GREETING_SECONDS = 20.0

Amounts = Mapping[str, float]


def needs(resources: ResourceSpec, gpus: float) -> dict[str, float]:
    """What one trial asks Ray for, by Ray's names; `gpus` is settled already."""
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
    """what all nodes an autoscaler may add have together; None where it does not say"""

    @property
    def has_gpus(self) -> bool:
        return any(node.get("GPU", 0) > 0 for node in self.nodes)

    @property
    def offers_gpus(self) -> bool:
        """Whether there are GPUs, or will be: a cluster that is scaled to zero has none yet."""
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
        """How many trials are worth asking for: those that fit, and while the cluster may grow as
        many as another node would take."""
        waiting = max((fitting(node, need) for node in self.nodes), default=0) if self.grows else 0
        return max(1, self.slots(need) + waiting)

    def check(self, need: Amounts) -> str | None:
        """An error where no trial can ever start; a warning where only another node could."""
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
            return f"{wanted} yet: waiting for the autoscaler; the cluster has {self.text()}"
        hint = "lower resources.cpus or resources.gpus, or use a larger cluster"
        if all(self.total(name) >= amount for name, amount in need.items()):
            hint = "a trial runs on one node, however many there are: lower resources"
        raise UserError(f"{wanted}: Ray has {self.text()}", hint)

    def _never(self, need: Amounts) -> list[str]:
        """What a cluster that grows will not have however large it becomes, as far as it says. Some
        autoscalers know no types of accelerators."""
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
        told = [f"{n} node{'s' if n > 1 else ''} with {kind}" for kind, n in sorted(kinds.items())]
        return ", ".join(told) or "no node"


def check_here(resources: ResourceSpec) -> None:
    """An error where this machine has fewer CPUs than one trial takes. What else it has Ray knows,
    once it is started."""
    node = {"CPU": float(os.cpu_count() or 1)}
    Cluster((node,)).check({"CPU": float(resources.cpus)} if resources.cpus else {})


def fitting(node: Amounts, need: Amounts) -> int:
    """How many trials a node takes. A fraction of a GPU is a fraction of one GPU: what is left of
    two of them makes no place."""
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
    told = [_counted(amounts.get("CPU", 0.0), "CPU")]
    if amounts.get("GPU", 0.0) > 0:
        told.append(_counted(amounts["GPU"], "GPU") + (f" ({', '.join(types)})" if types else ""))
    hidden = ("CPU", "GPU", "memory", "object_store_memory")
    told += [
        f"{amount:g} {name}"
        for name, amount in amounts.items()
        if name not in hidden and not name.startswith((ACCELERATOR, "node:"))
    ]
    return " and ".join(told)


def _counted(amount: float, word: str) -> str:
    return f"{amount:g} {word}" if amount == 1 else f"{amount:g} {word}s"


def packed_share(peak: int, total: int) -> float:
    """The share of a GPU for trials of which one took `peak` of its `total` bytes: 1/k, with the
    largest k of which all fit."""
    fit = int(total / (MARGIN * max(1, peak)))
    k = max(1, min(MOST_ON_ONE_GPU, fit))
    return math.floor(1 / (k * STEP)) * STEP if k > 1 else 1.0


def connect(address: str | None) -> bool:
    """Join the cluster at `address`, or start Ray here. True when Ray is ours to stop."""
    import ray

    if ray.is_initialized():
        return False
    try:
        apart = head.own_sessions() if address is None else nullcontext()
        with held_back(), _without_handlers_of_ray(), apart:  # interrupted now, Ray aborts
            _init(address)
        if address is None:
            head.watch(head.started)
        else:
            head.watch(head.joined(), head.JOINED_LOOK_SECONDS)
    except BaseException:
        leave()
        raise
    return True


def leave() -> None:
    """Disconnect; stop what `connect` started. A reference to an object of Ray's that another
    thread collects while Ray goes would end the process, without a word."""
    import ray

    head.unwatch()
    if not head.lost():  # without its head Ray would try to reach it, and end the process then
        with uncollected():
            ray.shutdown()
    head.end()


@contextmanager
def _without_handlers_of_ray() -> Iterator[None]:
    """Ray's leave at a SIGTERM, and show a stack of C++ first. Workers keep them."""
    from ray._private import ray_constants, utils

    with (
        mock.patch.object(utils, "set_sigterm_handler"),
        mock.patch.object(ray_constants, "RAY_DISABLE_FAILURE_SIGNAL_HANDLER", True),
    ):
        yield


def _init(address: str | None) -> None:
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        _have_token()
        ray.init(
            address="local",  # never somebody else's cluster that happens to run here
            num_cpus=os.cpu_count(),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            **quiet,
        )
        return
    if address.startswith(("http://", "https://")):
        raise UserError(
            f"--address {address} is a dashboard; a search is sent there with bitfront submit",
            "a driver that stays wants auto or HOST:PORT on a node, or ray://HEAD:10001",
        )
    try:
        _greet(address)
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(
            f"no Ray cluster answers at '{address}': {first_line(error)}",
            "start one with: ray start --head; a cluster with tokens wants RAY_AUTH_MODE=token; "
            "from a machine that is no node of it: bitfront submit --address http://HEAD:8265",
        ) from None


def _have_token() -> None:
    """Ray makes one in the user's folder; where that takes no files, one for this run alone."""
    given = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ)
    if given or home_takes_files() or os.path.exists(os.path.expanduser("~/.ray/auth_token")):
        return
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _greet(address: str) -> None:
    """Raises ConnectionError where no head answers or it knows no such token: Ray itself would go
    on trying for minutes."""
    import grpc
    from ray._private.grpc_utils import init_grpc_channel
    from ray._private.services import canonicalize_bootstrap_address
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

    head = canonicalize_bootstrap_address(address)
    if head is None:  # `auto`, and nothing was started here: Ray says so
        return
    with init_grpc_channel(head) as channel:
        service = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        try:
            question = gcs_service_pb2.CheckAliveRequest()  # type: ignore[attr-defined]
            service.CheckAlive(question, timeout=GREETING_SECONDS)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                raise ConnectionError("it knows no such token") from None
            raise ConnectionError(error.details().rpartition(": ")[2]) from None


def look() -> Cluster:
    """The cluster this process is connected to, as it is now."""
    import ray

    nodes = tuple(node["Resources"] for node in ray.nodes() if node["Alive"])
    grows = _autoscales()
    return Cluster(nodes, grows, _most() if grows else None)


def offers_gpus() -> bool:
    """Of the cluster this process is connected to. One that has just been started has not told yet
    whether it grows."""
    deadline = time.monotonic() + TELLING_SECONDS
    while True:
        there = look()
        silent = not there.has_gpus and there.grows and there.may_have is None
        if not silent or time.monotonic() > deadline:
            return there.offers_gpus
        time.sleep(0.5)


def _most() -> Amounts | None:
    """What all nodes that may come have together; None where a kind of them does not say."""
    from ray._private.state import state

    config = state.get_cluster_config()
    if config is None or not all(kind.resources for kind in config.node_group_configs):
        return None
    return state.get_max_resources_from_cluster_config()


def _autoscales() -> bool:
    """Whether a cluster launcher or KubeRay may add nodes. Where none does, Ray's monitor reports
    every node as a type of its own, named by its id."""
    from ray.autoscaler.v2.utils import is_autoscaler_v2
    from ray.experimental.internal_kv import _internal_kv_get

    status = _internal_kv_get("__autoscaling_status")
    if not status:
        return bool(is_autoscaler_v2(fetch_from_server=True))
    report = json.loads(status).get("autoscaler_report") or {}
    return not any(name.startswith("node_") for name in report.get("active_nodes", {}))
