"""Real processes for tests and benchmarks of faults: Ray nodes, an MLflow server, a database, and a
user's bitfront commands. All of them listen on loopback or in networks of their own, are started in
a session of their own and are ended by process id."""

from testbed.rig.machines import machines_work
from testbed.rig.namespaces import Namespaces, mounts_work, namespaces_work, small_disk
from testbed.rig.nodes import ROOT, Cluster
from testbed.rig.processes import (
    CannotStrikeError,
    end,
    free_port,
    kill,
    listens,
    processes,
    wait_for,
)
from testbed.rig.servers import POSTGRES, Postgres, start_tracking_server, tracking_server
from testbed.rig.users import User

__all__ = [
    "POSTGRES",
    "ROOT",
    "CannotStrikeError",
    "Cluster",
    "Namespaces",
    "Postgres",
    "User",
    "end",
    "free_port",
    "kill",
    "listens",
    "machines_work",
    "mounts_work",
    "namespaces_work",
    "processes",
    "small_disk",
    "start_tracking_server",
    "tracking_server",
    "wait_for",
]
