"""Diagnostics of binary and pruned layers, a file per family: numbers that are computed after every
epoch and written to the ledger and MLflow. New files in this folder are imported automatically."""

from bitfront.trainables.layers.diagnostics.base import DIAGNOSTICS, Diagnostic, State, diagnose

__all__ = ["DIAGNOSTICS", "Diagnostic", "State", "diagnose"]
