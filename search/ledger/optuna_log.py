"""Optuna's own log, which tells nothing that a search does not tell itself, is shown to nobody."""

from __future__ import annotations


def silence() -> None:
    """Before Optuna is used for anything: it writes a line for every study otherwise, in each
    process anew. What goes wrong is raised, not logged."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
