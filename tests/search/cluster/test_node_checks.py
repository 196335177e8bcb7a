"""The verdicts about a cluster, on answers nodes may give."""

import sqlite3
from types import SimpleNamespace

import pytest

from bitfront.search.cluster.doctor import _disk, check_ledger
from bitfront.search.cluster.node_checks import (
    Node,
    _answers,
    _clock,
    _versions,
    check_cluster,
    check_storage,
)
from bitfront.search.cluster.node_probe import NodeProbe
from bitfront.search.ledger.disks import file_system_of, network_disk


def node(address, clock=0.0, **versions):
    facts = NodeProbe("").facts()
    facts["versions"] |= versions
    return Node(address, None, facts, clock)


def verdicts(checks):
    return {check.name: check.verdict for check in checks}


def test_a_package_of_another_version_on_one_node_is_found():
    nodes = [node("a"), node("b", torch="2.0.0"), node("c", bitfront="missing")]
    found = verdicts(_versions(nodes))
    assert found["torch on all nodes"] == "FAIL"
    assert found["bitfront on all nodes"] == "WARN", "submit brings the code along"
    assert found["ray on all nodes"] == "PASS"
    told = next(c.found for c in _versions(nodes) if c.name.startswith("torch "))
    assert "2.0.0 (1)" in told


def test_python_may_differ_in_its_last_number_only():
    assert verdicts(_versions([node("a", python="3.11.99")]))["python on all nodes"] == "PASS"
    assert verdicts(_versions([node("a", python="3.12.1")]))["python on all nodes"] == "FAIL"


def test_clocks_that_disagree_and_nodes_that_are_silent_are_found():
    assert _clock([node("a"), node("b", clock=1.0)]).verdict == "PASS"
    late = _clock([node("a"), node("10.0.0.7", clock=-61.0)])
    assert late.verdict == "FAIL"
    assert "10.0.0.7: -61.0 s" in late.found
    silent = next(_answers([node("a"), Node("10.0.0.9", None)]))
    assert silent.verdict == "FAIL"
    assert "10.0.0.9" in silent.found


def test_storage_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    assert check_storage(str(tmp_path / "file" / "in"), []).verdict == "FAIL"
    assert check_storage(f"file://{tmp_path}/made", []).verdict == "PASS"


@pytest.mark.parametrize(
    ("read", "told"),
    [("None", "does not see what the driver wrote"), ("b''", "what it wrote is not seen here")],
)
def test_a_node_with_a_disk_of_its_own_does_not_share(read, told, tmp_path, monkeypatch):
    """Whether it finds nothing of ours there, or writes to where we do not look."""
    source = f"def read(path): return {read}\ndef write(path, content): pass"
    asked = SimpleNamespace(remote=NodeProbe(source).shares)
    there = Node("10.0.0.8", SimpleNamespace(shares=asked), facts={})
    monkeypatch.setattr("ray.get", lambda answer, timeout: answer)
    check = check_storage(str(tmp_path), [there])
    assert check.verdict == "FAIL"
    assert f"10.0.0.8 {told}" in check.found
    assert check.found.endswith("not shared")
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_a_ledger_must_answer_and_no_password_is_shown(tmp_path):
    assert check_ledger(f"sqlite:///{tmp_path}/ledger.db").verdict == "PASS"
    assert check_ledger(f"sqlite:///{tmp_path}/none/ledger.db").verdict == "FAIL"
    away = check_ledger("postgresql://me:hunter2@127.0.0.1:1/ledger")
    assert away.verdict == "FAIL"
    assert "hunter2" not in away.found + away.advice


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A folder that is said to be on a network disk."""
    mounts = tmp_path / "mounts"
    shared = tmp_path / "shared"
    shared.mkdir()
    mounts.write_text(
        f"disk / ext4 rw 0 0\nauto {shared} autofs rw 0 0\nserver:/x {shared} nfs4 rw 0 0\n"
    )
    monkeypatch.setattr("bitfront.search.ledger.disks.MOUNTS", mounts)
    return shared


def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount(network):
    assert file_system_of(network / "a") == "nfs4"
    assert network_disk(network / "a") == "nfs4"
    assert file_system_of(network.parent) == "ext4"
    assert network_disk(network.parent) is None


def test_sqlite_on_a_network_disk_is_told_of_and_needs_no_shared_memory(network, make_space):
    from bitfront.search.ledger.folder import SearchFolder
    from bitfront.search.ledger.reader import LedgerReader, read_only
    from bitfront.search.session.session import Session

    assert check_ledger(f"sqlite:///{network}/ledger.db").verdict == "FAIL"
    assert "a network disk (nfs4)" in _disk(network).found
    assert _disk(network).verdict == "WARN"
    (network / "tiny").mkdir()
    (network.parent / "tiny").mkdir()
    for root, journal in ((network, "delete"), (network.parent, "wal")):
        config, space = make_space()
        session = Session(config, space, SearchFolder(root / "tiny"), None)
        entry = session.ask()
        reader = LedgerReader(session.folder.ledger_url, config.name)
        reader.read()
        assert [e.id for e in reader.entries] == [entry.id]
        with sqlite3.connect(root / "tiny" / "ledger.db") as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == (journal,)
        assert "mode=ro" in read_only(session.folder.ledger_url)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("http://127.0.0.1:1", "is a dashboard"),
        ("127.0.0.1:1", "Connection refused"),
        ("no-such-host.invalid:6379", "no Ray cluster answers"),
    ],
)
def test_no_cluster_at_the_address_is_a_failure_with_advice(address, found):
    """At once: Ray itself tries for minutes."""
    (check,) = check_cluster(address)
    assert check.verdict == "FAIL"
    assert found in check.found
    assert "submit" in check.found + check.advice
