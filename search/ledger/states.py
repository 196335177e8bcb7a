"""The states of a trial, by one name each in code, JSON, CSV, MLflow and pages.

Optuna's own names for them stay inside the ledger (`OPTUNA_STATES`)."""

from __future__ import annotations

from enum import StrEnum


class TrialState(StrEnum):
    """What has become of a trial."""

    COMPLETE = "complete"
    """trained to the end, with a value for every objective"""
    STOPPED = "stopped"
    """ended by early stopping; Optuna calls it PRUNED"""
    FAILED = "failed"
    """ended with an error or without a finite value"""
    PAUSED = "paused"
    """rests at a rung, or after a look, until it is taken up again; Optuna calls it RUNNING"""
    RUNNING = "running"
    """started and not ended; after an interruption it is the next one to continue"""
    WAITING = "waiting"
    """queued in the study and not started"""


ENDED = (TrialState.COMPLETE, TrialState.STOPPED, TrialState.FAILED)

# Keys: the names that Optuna writes into its tables.
OPTUNA_STATES = {
    "COMPLETE": TrialState.COMPLETE,
    "PRUNED": TrialState.STOPPED,
    "FAIL": TrialState.FAILED,
    "RUNNING": TrialState.RUNNING,
    "WAITING": TrialState.WAITING,
}
OPTUNA_OPEN = ("RUNNING", "WAITING")
