"""Switches Optuna's own log off: a search reports the same events itself."""

from __future__ import annotations


def silence() -> None:
    """Set Optuna's log level so that it prints nothing; errors are raised, not logged. Call it in
    each process before Optuna is used."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
