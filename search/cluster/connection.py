"""The connection of this process to Ray: starting it here, joining a cluster, leaving again, and
asking what the cluster has. What a trial needs of it is in resources.py."""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import ray
from ray._common.utils import get_default_ray_temp_dir

from bitfront.search.caches import home_takes_files
from bitfront.search.cluster import head
from bitfront.search.cluster.remote import tokens
from bitfront.search.cluster.resources import Amounts, Cluster
from bitfront.search.garbage import uncollected
from bitfront.search.session.interrupts import held_back
from bitfront.trainables.errors import UserError, first_line

OBJECT_STORE_BYTES = 256 * 1024**2
# How long a cluster that has just been started may take to report whether it grows.
REPORT_SECONDS = 30.0
# What Ray calls nodes that a cluster's file names by their addresses (`provider: {type: local}`).
OWN_MACHINES = "local.cluster.node"
# How long the head of a cluster may take to answer the first request.
GREETING_SECONDS = 20.0


def connect(address: str | None) -> bool:
    """Join the cluster at `address`, or start Ray here. Returns whether the caller has to `leave`:
    False where this process was connected before."""
    if ray.is_initialized():
        return False
    try:
        apart = head.own_sessions() if address is None else nullcontext()
        # Held back: an interrupt would make Ray abort.
        with held_back(), _without_handlers_of_ray(), _same_imports(), apart:
            _init(address)
        if address is None:
            node: Any = ray._private.worker._global_node
            head.remember_session(Path(node.get_session_dir_path()))
            head.watch(head.started)
        else:
            head.watch(head.joined(), head.JOINED_LOOK_SECONDS)
    except BaseException:
        leave()
        raise
    return True


def leave() -> None:
    """Disconnect, and stop a Ray that `connect` started. Garbage collection is off meanwhile:
    freeing a reference to a Ray object during the shutdown would abort the process."""
    head.unwatch()
    if not head.lost():  # without its head Ray would try to reach it, and then end the process
        with uncollected():
            ray.shutdown()
    head.end()


@contextmanager
def _without_handlers_of_ray() -> Iterator[None]:
    """Keep Ray from installing its signal handlers in this process: they exit on SIGTERM and print
    a C++ stack. Workers keep theirs."""
    from ray._private import ray_constants, utils

    with (
        mock.patch.object(utils, "set_sigterm_handler"),
        mock.patch.object(ray_constants, "RAY_DISABLE_FAILURE_SIGNAL_HANDLER", True),
    ):
        yield


@contextmanager
def _same_imports() -> Iterator[None]:
    """Keep Ray from putting the current folder first on the path of workers, unless this process
    imports from it too: a file of the user's called `types.py` or `rich.py` would be executed there
    in place of the library."""
    if os.getcwd() in map(os.path.abspath, sys.path):
        yield
        return
    # Ray leaves the folder out where it sends one along.
    job = ray.job_config.JobConfig
    with mock.patch.object(job, "_runtime_env_has_working_dir", return_value=True):
        yield


def _init(address: str | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        _start(quiet)
        return
    if address.startswith(("http://", "https://")):
        raise UserError(
            f"--address {address} is a dashboard; a search is sent there with bitfront submit",
            "what stays with your terminal wants auto or HOST:PORT on a node (ray attach), "
            "or ray://HEAD:10001",
        )
    try:
        _greet(address)
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(
            f"no Ray cluster answers at '{address}': {first_line(error)}",
            "start one with: ray start --head; "
            "from a machine that is no node of it: bitfront submit --address http://HEAD:8265",
        ) from None


def _start(options: dict[str, Any]) -> None:
    """Start a Ray of our own on this machine."""
    _have_token()
    try:
        with _without_extras():
            ray.init(
                address="local",  # never somebody else's cluster that happens to run here
                num_cpus=os.cpu_count(),
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                # Those that Ray starts before it is asked are not taken by Tune, whose trials have
                # an environment of their own.
                _system_config={"prestart_worker_first_driver": False},
                **options,
            )
    except Exception as error:  # Ray raises a bare Exception where its start takes too long
        raise UserError(
            f"Ray did not start on this machine: {first_line(error)}", _advice(str(error))
        ) from error


@contextmanager
def _without_extras() -> Iterator[None]:
    """Keep Ray from starting processes that a search on one machine has no use for, a second of CPU
    time each: the server behind a dashboard that is not shown, for which it would also wait, the
    monitor of an autoscaler, and the one that passes the logs of workers on to the driver. Its
    agent, which it cannot do without, is the one of a Ray that was installed without dashboard."""
    from ray._private import utils
    from ray._private.node import Node

    def no_page(self: Any, **_: Any) -> None:
        self._webui_url = ""

    with (
        mock.patch.object(Node, "start_api_server", no_page),
        mock.patch.object(Node, "start_monitor"),
        mock.patch.object(Node, "start_log_monitor"),
        mock.patch.object(utils, "get_dashboard_dependency_error", return_value=ImportError()),
    ):
        yield


def _advice(message: str) -> str:
    """What to do where Ray did not start."""
    if "timed out" in message or "Failed to start GCS" in message:
        load = f"its load is {os.getloadavg()[0]:.0f} on {os.cpu_count()} CPUs"
        return (
            f"the machine may be too busy ({load}): try again later, or use a Ray that runs "
            "already: ray start --head, then --address auto"
        )
    return f"Ray keeps its files in {get_default_ray_temp_dir()}; another folder: RAY_TMPDIR=DIR"


def _have_token() -> None:
    """Make a token for this process alone where Ray cannot store one in the user's home."""
    given = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ)
    if given or home_takes_files() or os.path.exists(os.path.expanduser("~/.ray/auth_token")):
        return
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _greet(address: str) -> None:
    """Raise where no head answers or our token is refused: Ray itself would go on trying for
    minutes."""
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
        except ray.exceptions.AuthenticationError:  # there is no token here
            raise tokens.refused(address, tokens.MISSING) from None
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                raise tokens.refused(address) from None
            raise ConnectionError(error.details().rpartition(": ")[2]) from None


def look() -> Cluster:
    """The cluster this process is connected to, as it is now."""
    nodes = tuple(node["Resources"] for node in ray.nodes() if node["Alive"])
    grows, coming = _autoscales()
    return Cluster(nodes, grows, _most() if grows else None, coming)


def workers() -> tuple[int, int]:
    """How many workers of this driver have a place on a node, and how many of them are ready."""
    from ray._private.state import actors

    job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
    states = [actor["State"] for actor in actors(job_id=job).values()]
    return sum(state != "DEAD" for state in states), states.count("ALIVE")


def free() -> list[Amounts]:
    """What is left of every node."""
    from ray._private.state import available_resources_per_node

    return list(available_resources_per_node().values())


def offers_gpus() -> bool:
    """Whether the cluster has GPUs, or may add nodes that have some. A cluster that has just been
    started does not report at once whether it grows: this waits for it, up to REPORT_SECONDS."""
    deadline = time.monotonic() + REPORT_SECONDS
    while True:
        there = look()
        silent = not there.has_gpus and there.grows and there.may_have is None
        if not silent or time.monotonic() > deadline:
            return there.offers_gpus
        time.sleep(0.5)


def _most() -> Amounts | None:
    """The resources of all nodes an autoscaler may add together; None where a node type does not
    declare them."""
    from ray._private.state import state

    config = state.get_cluster_config()
    if config is None or not all(kind.resources for kind in config.node_group_configs):
        return None
    return state.get_max_resources_from_cluster_config()


def _autoscales() -> tuple[bool, int | None]:
    """Whether a cluster launcher or KubeRay may add nodes, and how many machines of one's own are
    being set up. Without an autoscaler, Ray's monitor reports every node as a node type of its own,
    named by its id."""
    from ray.autoscaler.v2.utils import is_autoscaler_v2
    from ray.experimental.internal_kv import _internal_kv_get

    status = _internal_kv_get("__autoscaling_status")
    if not status:
        return bool(is_autoscaler_v2(fetch_from_server=True)), None
    report = json.loads(status).get("autoscaler_report") or {}
    kinds = report.get("active_nodes") or {}
    if set(kinds) == {OWN_MACHINES}:  # no others will come than those that are being set up
        launches = (report.get("pending_launches") or {}).values()
        coming = len(report.get("pending_nodes") or ()) + sum(launches)
        return coming > 0, coming
    return not any(name.startswith("node_") for name in kinds), None


@contextmanager
def quiet_ray() -> Iterator[None]:
    """Silence Ray's warnings about failed trials, since the ledger has their reasons, and its usage
    count of callbacks, which would import MLflow before the first trial."""
    from ray.air._internal import usage

    loggers = [logging.getLogger(name) for name in ("ray.tune", "ray.train", "ray")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with mock.patch.object(usage, "tag_callbacks"):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        sys.stdout.flush()
