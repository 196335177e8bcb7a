"""Searches of a cluster's head, found by name in all its homes; and whose they are."""

import json

import pytest

from bitfront import cli
from bitfront.search import homes, submission
from bitfront.search.ledger.folder import SearchFolder, home
from bitfront.terminal import next_commands
from bitfront.trainables.errors import UserError

YAML = """\
name: x
task: {dataset: digits, model: {name: mlp, depth: 3, width: 8}, epochs: 2, subset: 200}
space: {method: [bnn], plan: {per: layer, levels: [F, B]}}
tracking: {enabled: false}
"""


@pytest.fixture
def on_a_head(tmp_path, monkeypatch):
    """Two homes of a head, of which one is the default."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("BITFRONT_HOME", str(tmp_path / "usual"))
    sent = submission.Submission("http://head:8265", "bob@laptop", "job-1", "", ())
    monkeypatch.setenv(submission.VARIABLE, sent.text())
    return tmp_path / "usual", tmp_path / "other"


def made(root, name="x", owner=None):
    folder = SearchFolder(root / name)
    folder.path.mkdir(parents=True)
    folder.config_file.write_text(YAML)
    if owner:
        (folder.path / "sent-by").write_text(owner)
    return folder


def test_a_name_is_found_in_the_home_it_was_submitted_to(on_a_head):
    usual, other = on_a_head
    assert homes.home_for("x", None) == usual
    made(other)
    assert homes.home_for("x", None) == usual, "no home of this head yet"
    homes.remember(other)
    assert homes.home_for("x", None) == other
    assert homes.home_for("x", str(usual)) == usual
    assert homes.home_for("new", None) == usual


def test_homes_of_other_jobs_are_looked_into_too(on_a_head, monkeypatch):
    _, other = on_a_head
    made(other)
    sent = submission.Submission("http://head:8265", "bob@laptop", homes=(str(other),))
    monkeypatch.setenv(submission.VARIABLE, sent.text())
    assert homes.home_for("x", None) == other


def test_a_home_below_the_usual_one_is_found_by_a_head_that_knows_nothing(on_a_head):
    """The next head has the disk of this one, or what clusters/keep.sh saved of it."""
    usual, _ = on_a_head
    made(usual / "alice")
    made(usual, "mine")
    made(usual / "mine", "code")  # a search's own folder is no home, nor are those of all searches
    made(usual / "code", "x")
    assert homes.known() == [usual, usual / "alice"]
    assert homes.home_for("x", None) == usual / "alice"
    assert homes.home_for("code", None) == usual


def test_two_searches_of_a_name_are_told_apart_by_home_and_owner(on_a_head, capsys):
    usual, other = on_a_head
    made(usual, owner="ann@desk")
    made(other, owner="bob@laptop")
    homes.remember(other)
    with pytest.raises(UserError, match="several searches 'x'") as told:
        homes.home_for("x", None)
    assert f"{usual} (ann@desk), {other} (bob@laptop)" in str(told.value)
    assert "--home" in str(told.value)
    assert cli.main(["status", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(each["home"], each["owner"]) for each in listed] == [
        (str(usual), "ann@desk"),
        (str(other), "bob@laptop"),
    ]


def test_elsewhere_there_is_one_home(on_a_head, monkeypatch):
    usual, other = on_a_head
    made(other)
    homes.remember(other)
    monkeypatch.delenv(submission.VARIABLE)
    assert homes.home_for("x", None) == usual == home()
    assert next_commands.resume("x") == "bitfront resume x"


def test_commands_that_are_suggested_on_a_head_work_where_they_are_read(on_a_head, monkeypatch):
    assert next_commands.resume("x") == "bitfront resume x --address http://head:8265"
    sent = submission.Submission("http://head:8265", "bob@laptop", home="/a b")
    monkeypatch.setenv(submission.VARIABLE, sent.text())
    told = "bitfront resume x --home '/a b' --address http://head:8265"
    assert next_commands.resume("x") == told


def test_the_driver_notes_its_job_and_only_a_new_search_its_sender(on_a_head):
    usual, _ = on_a_head
    folder = SearchFolder(usual / "x")
    assert folder.job is None
    with folder.locked():
        folder.note_sender()
    assert folder.job == "job-1"
    assert homes.owner_of(folder) == "bob@laptop"
    old = made(usual, "y")
    old.note_sender()
    assert old.sent_by is None, "it is somebody else's, who did not submit it"


def test_a_broken_variable_of_another_version_is_none(monkeypatch):
    monkeypatch.setenv(submission.VARIABLE, '{"other": 1}')
    assert submission.here() is None
