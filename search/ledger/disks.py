"""The kind of disk that a folder is on. SQLite, in which ledgers and MLflow's runs are stored,
needs locks and shared memory that network disks do not have."""

from __future__ import annotations

from pathlib import Path

MOUNTS = Path("/proc/mounts")
NETWORK = (
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.s3",
    "fuse.sshfs",
    "gpfs",
    "lustre",
    "nfs",
    "smb",
)


def network_disk(folder: Path) -> str | None:
    """The type of the network disk a folder is on, if it is on one."""
    found = file_system_of(folder)
    return found if found.startswith(NETWORK) else None


def file_system_of(folder: Path) -> str:
    """The type of the file system, as the kernel names it, of the longest mount point above."""
    try:
        table = MOUNTS.read_text()
    except OSError:
        return ""
    rows = [line.split()[1:3] for line in table.splitlines()]
    above = [row for row in rows if folder.resolve().is_relative_to(row[0])]
    # Of two mounts at the same place the later one is visible.
    return max(reversed(above), key=lambda row: len(row[0]))[1] if above else ""
