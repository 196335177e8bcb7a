"""Invariants of a search after any fault. `broken` returns those that do not hold; the chaos
benchmark and the tests use it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bitfront.search.ledger.states import ENDED, TrialState
from testbed.faulty import audit
from testbed.rig import Cluster, User, processes

ORPHAN_SECONDS = 30.0


def undisturbed(search: str) -> list[Any]:
    """The trials of a search without faults, trained one after the other in this process, without
    Ray or MLflow."""
    from bitfront.search.config.load import load_text
    from bitfront.search.ledger.folder import SearchFolder
    from bitfront.search.session.session import Session
    from bitfront.trainables.worker.worker import Worker

    config, space = load_text(search)
    with TemporaryDirectory() as folder:
        session = Session(config, space, SearchFolder(Path(folder)), None)
        while (entry := session.ask()) is not None:
            trial = Worker(session.trial_config(entry))
            result = trial.step()
            while not result["done"]:
                result = trial.step()
            session.finish(entry.id, result)
        session.close()
        return list(session.ledger.entries.values())


def broken(
    user: User,
    reference: Iterable[Any],
    cluster: Cluster,
    tracking: str | None = None,
    may_fail: dict[str, str] | None = None,
) -> list[str]:
    """The invariants that do not hold, as one line per violation.

    `reference`: the trials of the same search without faults; `tracking`: the MLflow store;
    `may_fail`: the trials that were made to fail, with the reason the ledger must have."""
    entries = user.entries()
    expected = {e.id: e for e in reference}
    found = ended_once(entries, expected, may_fail or {})
    found += same_values(entries, expected)
    found += same_front(user, entries, expected)
    found += nothing_trained_again(entries, cluster.folder)
    if tracking is not None:
        found += told_once(entries, tracking)
    found += no_orphans(cluster.token)
    found += small_logs(cluster)
    if (user.search.path / "trials").exists():
        found.append("checkpoints of ended trials are left on disk")
    return found


def ended_once(entries: list[Any], expected: dict[str, Any], may_fail: dict[str, str]) -> list[str]:
    """Violations of: every trial is in the ledger once, ended, a failed one with its reason."""
    found = []
    counts = Counter(e.id for e in entries)
    if set(counts) != set(expected):
        missing, extra = set(expected) - set(counts), set(counts) - set(expected)
        found.append(f"other trials than undisturbed: {missing} missing, {extra} new")
    found += [f"{trial} is {n} times in the ledger" for trial, n in counts.items() if n > 1]
    for entry in entries:
        if entry.state not in ENDED:
            found.append(f"{entry.id} is left {entry.state}")
        if entry.state == TrialState.FAILED and may_fail.get(entry.id) != entry.failure:
            found.append(f"{entry.id} failed: {entry.failure}: {(entry.message or '')[:200]}")
        if entry.state != TrialState.FAILED and entry.id in may_fail:
            found.append(f"{entry.id} was made to fail ({may_fail[entry.id]}) and did not")
    return found


def same_values(entries: list[Any], expected: dict[str, Any]) -> list[str]:
    """Violations of: a completed trial has the same values and number of epochs as without
    faults."""
    return [
        f"{e.id} has {e.values} after {len(e.history)} epochs"
        for e in entries
        if e.state == TrialState.COMPLETE and e.id in expected
        if e.values != expected[e.id].values or len(e.history) != len(expected[e.id].history)
    ]


def same_front(user: User, entries: list[Any], expected: dict[str, Any]) -> list[str]:
    """Violations of: the front is that of the search without faults, except for failed trials."""
    from bitfront.search.front import Front
    from bitfront.search.results.results import Results

    results = Results.of(user.search)
    front = Front(results.config.front_objectives)
    failed = {e.id for e in entries if e.state == TrialState.FAILED}
    for entry in expected.values():
        if entry.values is not None and entry.id not in failed:
            front.add(entry.id, entry.values)
    shown = {e.id for e in results.front}
    return [] if shown == set(front.keys) else [f"the front is {shown}, not {set(front.keys)}"]


def nothing_trained_again(entries: list[Any], chaos: Path) -> list[str]:
    """Violations of: no epoch of a trial begins after its end was written to the ledger."""
    ended = {e.id: e.ended for e in entries if e.ended is not None}
    return [
        f"{row.trial} was trained again, {row.began - ended[row.trial]:.1f} s after its end"
        for row in audit(chaos)
        if row.trial in ended and row.began > ended[row.trial]
    ]


def told_once(entries: list[Any], tracking: str) -> list[str]:
    """Violations of: MLflow has one run per trial, with the state and the epochs of the ledger, one
    finished parent run, and no run of any kind that is RUNNING."""
    from mlflow import MlflowClient

    from bitfront.search.tracking.mirror import STATUS

    client = MlflowClient(tracking)
    experiments = [e.experiment_id for e in client.search_experiments()]
    runs = client.search_runs(experiments, "tags.`bitfront.kind` = 'trial'")
    parents = client.search_runs(experiments, "tags.`bitfront.kind` = 'search'")
    states = {e.id: STATUS.get(e.state) for e in entries}
    counts = Counter(run.data.tags["bitfront.trial"] for run in runs)
    found = [f"{trial} has {n} runs in MLflow" for trial, n in counts.items() if n > 1]
    found += [f"{trial} has no run in MLflow" for trial in set(states) - set(counts)]
    for run in runs:
        trial = run.data.tags["bitfront.trial"]
        if run.info.status != states.get(trial):
            found.append(f"{trial} is {run.info.status} in MLflow, {states.get(trial)} in fact")
    histories = {e.id: e.history for e in entries if e.state == TrialState.COMPLETE}
    for run in runs:
        trial = run.data.tags["bitfront.trial"]
        told = client.get_metric_history(run.info.run_id, "val_accuracy")
        epochs = sorted((m.step, m.value) for m in told)
        wanted = [(row["epoch"], row["val_accuracy"]) for row in histories.get(trial, [])]
        if trial in histories and epochs != wanted:
            found.append(f"{trial} has epochs {epochs} in MLflow, {wanted} in fact")
    running = client.search_runs(experiments, "attributes.status = 'RUNNING'")
    found += [f"run {run.info.run_name} is left RUNNING in MLflow" for run in running]
    statuses = [parent.info.status for parent in parents]
    if statuses != ["FINISHED"]:
        found.append(f"parent runs in MLflow: {statuses}")
    return found


def no_orphans(token: str, seconds: float = ORPHAN_SECONDS) -> list[str]:
    """Violations of: `seconds` after a search no worker of a trial and no driver is left."""
    deadline = time.monotonic() + seconds
    while True:
        left = {
            pid: title
            for pid, title in processes(token).items()
            if title.startswith("ray::ResourceTrainable") or "bitfront.cli" in title
        }
        if not left:
            return []
        if time.monotonic() > deadline:
            return [f"process {pid} is left: {title[:80]}" for pid, title in left.items()]
        time.sleep(0.2)


def small_logs(cluster: Cluster) -> list[str]:
    """Violations of: no log of a worker is larger than LOG_MB."""
    from bitfront.trainables.worker.log import LOG_MB

    sizes = {log.name: log.stat().st_size / 1e6 for log in cluster.logs()}
    return [f"{name} has {size:,.0f} MB" for name, size in sizes.items() if size > LOG_MB]
