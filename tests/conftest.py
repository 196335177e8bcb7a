"""What every test shares: one thread a process, and searches that never leave the test's folder."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("MLFLOW_TRACKING_URI", None)
os.environ.pop("BITFRONT_HOME", None)

import pytest


@pytest.fixture(autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("BITFRONT_HOME", str(tmp_path / "bitfront-runs"))


@pytest.fixture(autouse=True)
def _nothing_named(tmp_path, monkeypatch):
    """What the user has named, and which secrets were seen, is not passed on between tests; nor is
    the ledger a command was given, which it keeps in the environment."""
    monkeypatch.setenv("BITFRONT_LEDGER", "")
    monkeypatch.delenv("BITFRONT_LEDGER")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for place in ("named._now", "urls._known"):
        monkeypatch.setattr(f"search.{place}", set())
    monkeypatch.setattr("bitfront.search.named._given", {})
