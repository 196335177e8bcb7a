"""Checks of this machine and installation for `bitfront doctor`, with what to do where one fails.
Checks of a cluster are in node_checks.py."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

from bitfront.search import named
from bitfront.search.cluster.checks import Check
from bitfront.search.ledger.disks import network_disk
from bitfront.search.ledger.folder import LEDGER, home
from bitfront.search.ledger.reader import hint_for
from bitfront.search.results.stored import newest_readable, stored_config
from bitfront.search.tracking.store import tracking_uri
from bitfront.search.urls import (
    canonical,
    know,
    redacted,
    server_of,
    sqlite_for_mlflow,
    sqlite_path,
)
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import first_line

PACKAGES = ("torch", "torchvision", "ray", "optuna", "mlflow", "safetensors", "scikit-learn")
ENOUGH_DISK = 2 * 1024**3
ENOUGH_SHARED_MEMORY = 256 * 1024**2


def check_all(
    home_dir: str | None = None,
    address: str | None = None,
    tracking: str | None = None,
    storage: str | None = None,
    ledger: str | None = None,
) -> list[Check]:
    """The checks of this machine and, with an address, of the cluster and what its nodes share.
    Database and storage that the environment names for all searches are tried like given ones."""
    root = home(home_dir)
    ledger = ledger or os.environ.get(named.VARIABLES["ledger"]) or None
    storage = storage or os.environ.get(named.VARIABLES["storage"]) or None
    checks = [_python(), *_packages(), _torchvision(), _device(), _cores(), _shared_memory()]
    checks += [_disk(root), _data(), _tracking(root, tracking)]
    if ledger is not None:
        checks.append(check_ledger(ledger))
    if address is None and storage is None:
        return checks
    # Imports Ray, which may not be installed: `_packages` says so then.
    from bitfront.search.cluster import node_checks

    if address is not None:
        checks += node_checks.check_cluster(address, storage)
    elif storage is not None:
        checks.append(node_checks.check_storage(storage, []))
    return checks


def _python() -> Check:
    version = sys.version.split()[0]
    good = sys.version_info >= (3, 11)
    return Check("python", "PASS" if good else "FAIL", version, "" if good else "use 3.11 or newer")


def _packages() -> list[Check]:
    checks = []
    for package in PACKAGES:
        try:
            checks.append(Check(package, "PASS", metadata.version(package)))
        except metadata.PackageNotFoundError:
            checks.append(Check(package, "FAIL", "not installed", f"pip install {package}"))
    return checks


def _torchvision() -> Check:
    try:
        import torchvision
    except (ImportError, RuntimeError) as error:
        return Check(
            "torchvision import",
            "FAIL",
            first_line(error),
            "a CPU-only torch beside PyPI's torchvision: reinstall both with "
            "pip install --force-reinstall torch torchvision",
        )
    return Check("torchvision import", "PASS", torchvision.__version__)


def _device() -> Check:
    import torch

    if torch.cuda.is_available():
        return Check(
            "GPU", "PASS", f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
        )
    return Check("GPU", "PASS", "none; trials train on the CPU")


def _cores() -> Check:
    cores = os.cpu_count() or 1
    if cores < 2:
        return Check("cores", "WARN", str(cores), "one trial at a time; expect long searches")
    return Check("cores", "PASS", str(cores))


def _shared_memory() -> Check:
    shm = Path("/dev/shm")
    if not shm.exists():
        return Check("shared memory", "PASS", "no /dev/shm on this system")
    free = shutil.disk_usage(shm).free
    text = f"{free // 1024**2} MB free in /dev/shm"
    if free < ENOUGH_SHARED_MEMORY:
        return Check("shared memory", "WARN", text, "Ray will use /tmp, which is slower")
    return Check("shared memory", "PASS", text)


def _disk(root: Path) -> Check:
    existing = next(p for p in (root, *root.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free // 1024**2:,} MB free at {root}"
    if not os.access(existing, os.W_OK):
        return Check(
            "searches", "FAIL", f"{root} cannot be written", "give another one: --home DIR"
        )
    disk = network_disk(existing)
    if disk is not None and not os.environ.get(LEDGER):
        advice = "SQLite may corrupt there: a local disk (--home DIR), or --ledger postgresql://..."
        return Check("searches", "WARN", f"{text}, a network disk ({disk})", advice)
    if free < ENOUGH_DISK:
        return Check("searches", "WARN", text, "checkpoints and MLflow artifacts need room")
    return Check("searches", "PASS", text)


def _data() -> Check:
    data_dir = os.environ.get("BITFRONT_DATA")
    embedded = [name for name, info in DATASETS.items() if info.embedded]
    if data_dir is None:
        return Check(
            "data", "PASS", f"{', '.join(embedded)} (embedded)", "BITFRONT_DATA=DIR adds others"
        )
    others = [n for n, info in DATASETS.items() if not info.embedded and info.is_there(data_dir)]
    there = f"{', '.join([*embedded, *others])} ({len(embedded)} embedded"
    if others:
        return Check("data", "PASS", f"{there}, others in {data_dir})")
    advice = "needed for other data sets only; what files they want: bitfront datasets --json"
    if Path(data_dir).is_dir():
        return Check("data", "PASS", f"{there}; none in {data_dir} yet)", advice)
    return Check("data", "WARN", f"{there}; there is no folder {data_dir})", advice)


def _tracking(root: Path, given: str | None) -> Check:
    """Whether MLflow answers: a failure for the server `given`, a warning for any other."""
    newest = newest_readable(root)
    if given is not None:
        uri = canonical(given)
    elif newest is not None:
        config = stored_config(newest)
        if config.tracking.uri and not named.is_named("tracking", config.tracking.uri):
            found = f"{server_of(config.tracking.uri)} is not asked: only '{config.name}' names it"
            return Check("tracking", "WARN", found, "if you trust it: --tracking URL")
        uri = tracking_uri(config, root)
    else:
        uri = os.environ.get("MLFLOW_TRACKING_URI") or sqlite_for_mlflow(root / "mlflow.db")
    if given is None and uri.startswith("sqlite") and not (root / "mlflow.db").exists():
        return Check("tracking", "PASS", "SQLite, made by the first search")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
    from mlflow import MlflowClient

    try:
        experiments = MlflowClient(uri).search_experiments(max_results=1)
    except Exception as error:  # MLflow raises many types for a server that is away
        first = first_line(error)[:200]
        verdict = "WARN" if given is None else "FAIL"
        advice = "is the server up (mlflow server), is the address right? Searches go on without "
        advice += "it; their runs are delivered by resume"
        return Check("tracking", verdict, f"{redacted(uri)}: {redacted(first)}", advice)
    return Check(
        "tracking", "PASS", f"{redacted(uri)} answers, {len(experiments)} experiment(s) or more"
    )


def check_ledger(url: str) -> Check:
    """Whether a search could keep its ledger there: its database is used as a search would, with a
    study that is deleted again, and SQLite must be safe on its disk."""
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
    from bitfront.search.ledger import storage  # imports Optuna, which may not be installed

    new = file is not None and not file.exists()
    try:
        storage.try_out(url)
    except Exception as error:  # drivers raise types of their own; a missing one is an ImportError
        reason = redacted(storage.reason_of(error))
        advice = "is the server up, may this user log in, is its driver here? "
        advice += "pip install 'bitfront[postgres]'"
        return Check("ledger", "FAIL", f"{shown}: {reason}", hint_for(reason) or advice)
    finally:
        if file is not None and new:
            for left in file.parent.glob(f"{file.name}*"):
                left.unlink()
    return Check("ledger", "PASS", f"{shown}: a study was made, written, read and deleted")
