"""Diagnostics of binary and pruned layers, a file per family: what tells after an epoch how
training goes. A new file in this folder is found by itself; its value reaches the ledger and
MLflow."""

from bitfront.trainables.layers.diagnostics.base import DIAGNOSTICS, Diagnostic, State, diagnose

__all__ = ["DIAGNOSTICS", "Diagnostic", "State", "diagnose"]
