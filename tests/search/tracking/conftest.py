"""Time for MLflow on a busy machine."""

import pytest

from bitfront.search.tracking import tracker


@pytest.fixture(autouse=True)
def time_for_mlflow(monkeypatch):
    """The end of a search gives MLflow up after 10 s without progress; on a machine with a load of
    ten, importing it and making its database takes longer. What is never delivered still fails,
    and tests of giving up set a time of their own."""
    monkeypatch.setattr(tracker, "CLOSE_SECONDS", 240.0)
