"""A test that tracks a search does not wait for MLflow to make its tables."""

import pytest

from testbed.stores import copy_store


@pytest.fixture(autouse=True)
def _copied_stores(monkeypatch):
    monkeypatch.setattr("bitfront.search.tracking.mirror.make_database", copy_store)
