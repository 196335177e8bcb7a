"""A folder from a stranger: whatever is in it, no verb writes, deletes or sends anything outside of
it that its user has not asked for."""

import json
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from bitfront import cli
from bitfront.search.cluster.doctor import _tracking
from bitfront.search.config.space import build_space
from bitfront.search.ledger.folder import SearchFolder, pretrained_folder
from bitfront.search.session.session import Session
from bitfront.trainables.files import discard, opened, replacing, write_atomically
from bitfront.trainables.training.checkpoints import save_state
from bitfront.trainables.worker import storage

pytestmark = pytest.mark.slow

WRITTEN = (
    "delivered",
    "exhausted",
    "finals.jsonl",
    "front-small.png",
    "front.csv",
    "front.html",
    "front.png",
    "ray",
    "report-tiny-other.html",
    "report.html",
)
TRIALS = 4
# Files beside the ledger as long as somebody has it open.
OF_READERS = shutil.ignore_patterns("*-wal", "*-shm")


def contents(folder):
    """All that is in it, with what would tell that somebody touched it."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else sorted(p.name for p in path.iterdir()),
        )
        for path in sorted([folder, *folder.rglob("*")])
    }


class Received:
    """A search of four trials in a home of its own, and a folder outside that stays as it is."""

    def __init__(self, tmp_path, make_config, sent):
        self.make_config = make_config
        self.root = tmp_path / "received"
        self.outside = tmp_path / "outside"
        self.outside.mkdir()
        for name in ("tiny", "other"):
            if not (sent / name).exists():
                self.search(sent / name)
            shutil.copytree(sent / name, self.root / name, ignore=OF_READERS)
        self.folder = SearchFolder(self.root / "tiny")
        self.before = None

    def search(self, path):
        config = self.make_config(f"name={path.name}", f"search.trials={TRIALS}", "task.epochs=1")
        folder = SearchFolder(path)
        write_atomically(folder.config_file, config.dump())
        session = Session(config, build_space(config), folder, None)
        for _ in range(TRIALS):
            end(session)
        with closing(sqlite3.connect(folder.path / "ledger.db")) as ledger:
            ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # all of it is in the one file

    def change(self, **keys):
        data = yaml.safe_load(self.folder.config_file.read_text()) | keys
        self.folder.config_file.write_text(yaml.safe_dump(data))

    def canary(self, name, directory=False):
        """Something of the user's, which a name in the folder leads to."""
        path = self.outside / name
        if directory:
            path.mkdir()
            (path / "precious").write_text("mine")
        else:
            path.write_text("mine")
        return path

    def link(self, name, directory=False):
        place = self.folder.path / name
        discard(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(self.canary(name.replace("/", "-"), directory))

    def seal(self):
        self.before = contents(self.outside)

    def unharmed(self):
        return contents(self.outside) == self.before

    def call(self, *words):
        return cli.main([*words, "--home", str(self.root)])


def end(session):
    entry = session.ask()
    row = {"epoch": 1, "val_accuracy": entry.costs["flops_pct"] / 100, "train_loss": 0.5}
    session.finish(entry.id, {**row, "history": [row]})


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """Where the searches are, of which every test gets a copy."""
    return tmp_path_factory.mktemp("sent")


@pytest.fixture
def received(tmp_path, make_config, sent, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Received(tmp_path, make_config, sent)
    monkeypatch.setattr("bitfront.search.cluster.tuner.run_trials", trained_here)
    return made


def trained_here(session, address):
    """As Ray would: the worker keeps a checkpoint where it is told to, then the trial ends."""
    from bitfront.trainables.training.loop import Training
    from bitfront.trainables.training.network import device_from_resources
    from bitfront.trainables.training.parts import search_data

    while (entry := session.ask()) is not None:
        told = session.trial_config(entry)
        training = Training(entry.spec, *search_data(entry.spec.task), device_from_resources(0))
        save_state(training, Path(told["folder"]) / "state.pt")
        assert Path(told["pretrained"]).parent == session.folder.path.parent
        row = {"epoch": 1, "val_accuracy": 0.5, "train_loss": 0.5}
        session.finish(entry.id, {**row, "history": [row]})


def recipe_of(received):
    assert received.call("export", "tiny", "--knee", "-o", "recipe.yaml", "--seeds", "1") == 0


VERBS = {
    "status": ("status",),
    "front": ("front", "tiny", "--plot"),
    "csv": ("front", "tiny", "--csv"),
    "compare": ("compare", "tiny", "other"),
    "report": ("report", "tiny"),
    "reports": ("report", "tiny", "other"),
    "figure": ("figure", "tiny", "-o", "received/tiny/front.png"),
    "export": ("export", "tiny", "--all"),
    "replay": ("replay", "tiny/0"),
    "train": ("train", "recipe.yaml", "--quiet"),
    "extend": ("extend", "tiny", "--trials", "+1", "--quiet"),
    "resume": ("resume", "tiny", "--quiet"),
}


def test_no_verb_writes_through_a_link(received):
    recipe_of(received)
    for name in WRITTEN:
        received.link(name, directory=name == "ray")
    received.seal()
    ended = {name: received.call(*words) for name, words in VERBS.items() if name != "replay"}
    assert received.unharmed()
    # `train` notes the final training in a file that is added to: a link is refused there.
    assert ended.pop("train") == 2
    assert set(ended.values()) == {0}
    for name in ("front.csv", "front.html", "front.png", "report.html"):
        assert not (received.folder.path / name).is_symlink(), "replaced by the file itself"


@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal", "lock", "trials", "trials/abc"])
def test_a_link_that_cannot_be_replaced_is_refused_by_who_would_follow_it(name, received, capsys):
    if name == "ledger.db":
        shutil.copy(received.folder.path / name, received.outside / "copy")
    received.link(name, directory=name.startswith("trials"))
    if name == "ledger.db":  # a real one: it could be opened
        (received.outside / name).write_bytes((received.outside / "copy").read_bytes())
    received.seal()
    assert received.call(*VERBS["extend"]) == 2
    assert f"{received.folder.path / name} is a link" in capsys.readouterr().err
    assert received.call(*VERBS["resume"]) == 2
    for verb in ("status", "front", "report", "compare"):
        received.call(*VERBS[verb])
    assert received.unharmed()


@pytest.mark.parametrize("identity", ["../../outside/x", "..", "/etc", "a/b", "", "x' or '1"])
def test_an_identity_that_is_a_path_is_no_identity(identity, received, monkeypatch, capsys):
    place = received.root / "storage"
    (place / "tiny-..").mkdir(parents=True)
    received.canary("x", directory=True)
    monkeypatch.setenv("BITFRONT_STORAGE", str(place))
    received.change(storage=str(place))
    (received.folder.path / "identity").write_text(identity)
    received.seal()
    assert received.call(*VERBS["resume"]) == 2
    assert "no identity" in capsys.readouterr().err
    assert received.unharmed()


def test_a_storage_only_the_folder_names_is_asked_for(received, capsys):
    place = received.canary("storage", directory=True)
    identity = received.folder.identity
    (place / f"tiny-{identity}").mkdir()
    (place / f"tiny-{identity}" / "precious").write_text("mine")
    received.change(storage=str(place))
    received.seal()
    assert received.call(*VERBS["resume"]) == 2
    told = capsys.readouterr().err
    assert str(place) in told
    assert "--storage" in told
    assert received.unharmed()
    # Once it is named it is used, and what is not a checkpoint stays even there.
    assert received.call(*VERBS["resume"], "--storage", str(place)) == 0
    assert (place / f"tiny-{identity}" / "precious").read_text() == "mine"
    assert received.call(*VERBS["resume"]) == 0


def test_only_checkpoints_are_deleted_from_a_shared_storage(tmp_path):
    place = tmp_path / "storage" / "tiny-abc"
    for name in ("state.pt", "state.pt.12.part", ".state.pt.ab.part.pt"):
        storage.write(str(place / "t1" / name), b"")
    storage.write(str(place / "t2" / "thesis.tex"), b"mine")
    precious = tmp_path / "precious"
    storage.write(str(precious / "state.pt"), b"mine")
    (place / "t3").symlink_to(precious)
    storage.forget(str(place))
    assert sorted(p.name for p in place.rglob("*")) == ["t2", "t3", "thesis.tex"]
    assert (precious / "state.pt").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["mlflow.db", "pretrained", "selections"])
def test_what_searches_of_a_home_share_is_in_it(name, received, capsys):
    (received.root / name).symlink_to(received.canary(name, directory=name != "mlflow.db"))
    received.change(
        task=received.make_config("task.pretrain=1", "task.epochs=1").task.model_dump(mode="json")
    )
    received.seal()
    assert received.call(*VERBS["extend"]) == 2
    assert name in capsys.readouterr().err
    assert received.unharmed()


def test_files_of_runs_stay_in_the_home_whatever_its_database_says(received):
    assert received.call(*VERBS["resume"]) == 0
    place = received.canary("runs", directory=True)
    with sqlite3.connect(received.root / "mlflow.db") as database:
        assert database.execute("SELECT count(*) FROM runs").fetchone()[0] > TRIALS
        database.execute("UPDATE runs SET artifact_uri = ?", [place.as_uri()])
        database.execute("UPDATE experiments SET artifact_location = ?", [place.as_uri()])
    received.seal()
    assert received.call(*VERBS["resume"]) == 0
    assert received.unharmed()


def test_a_recipe_trains_into_no_folder_a_link_leads_to(received, capsys):
    recipe_of(received)
    Path("recipe-trained").symlink_to(received.canary("models", directory=True))
    received.seal()
    assert received.call(*VERBS["train"]) == 2
    assert "recipe-trained is a link" in capsys.readouterr().err
    assert received.unharmed()


def test_a_new_file_replaces_a_link_and_has_the_mode_of_any_other(tmp_path):
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "file.csv").symlink_to(target)
    mask = os.umask(0o022)
    try:
        with replacing(tmp_path / "file.csv") as part:
            assert part.suffix == ".csv"
            part.write_text("ours")
    finally:
        os.umask(mask)
    assert (tmp_path / "file.csv").read_text() == "ours"
    assert (tmp_path / "file.csv").stat().st_mode & 0o777 == 0o644
    assert target.read_text() == "mine"
    with pytest.raises(TypeError), replacing(tmp_path / "file.csv") as part:
        part.write_text(b"half")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["file.csv", "target"]


def test_a_pipe_in_the_place_of_the_lock_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "lock")
    assert not SearchFolder(tmp_path).running
    opened(tmp_path / "lock").close()


def test_folders_of_the_home_are_found_where_they_were(tmp_path):
    assert pretrained_folder(tmp_path) == tmp_path / "pretrained"


# --- servers ------------------------------------------------------------------------------------


@pytest.fixture
def foreign(received):
    """Its ledger and its runs are at servers only the folder names."""
    (received.folder.path / "ledger.json").write_text(
        json.dumps({"url": "postgresql://me@evil.example:6432/ledger"})
    )
    return received


@pytest.mark.parametrize("verb", [v for v in VERBS if v not in ("status", "train")])
def test_a_ledger_only_the_folder_names_is_not_opened(verb, foreign, monkeypatch, capsys):
    def connected(*args, **settings):
        raise AssertionError("a password would be on its way")

    monkeypatch.setenv("PGPASSWORD", "hunter2-secret")
    monkeypatch.setattr("sqlalchemy.create_engine", connected)
    monkeypatch.setattr("bitfront.search.ledger.ledger.open_storage", connected)
    assert foreign.call(*VERBS[verb]) == 2
    said = capsys.readouterr().err
    assert "evil.example:6432" in said
    assert "--ledger" in said
    assert len(said.splitlines()) == 2, "a line and a hint"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://a:@127.0.0.1:9/@good/",  # SQLAlchemy ends a login at the first @
        "postgresql://a:b@127.0.0.1:9/@good/db",
        "postgresql://a:b@good/db",  # nothing with a password is stored
    ],
)
def test_an_address_that_seems_to_be_of_a_named_server_is_refused(
    url, received, monkeypatch, capsys
):
    monkeypatch.setenv("BITFRONT_LEDGER", "postgresql://bob:pw@good/db")
    monkeypatch.setattr(
        "bitfront.search.ledger.reader.connected", lambda url: pytest.fail(f"asked {url}")
    )
    (received.folder.path / "ledger.json").write_text(json.dumps({"url": url}))
    assert received.call("front", "tiny") == 2
    assert "ledger.json: damaged: not an address as it is stored" in capsys.readouterr().err


def test_a_ledger_elsewhere_on_this_disk_is_asked_for_once(received, capsys):
    shutil.move(received.folder.path / "ledger.db", received.outside / "ledger.db")
    url = f"sqlite:///{received.outside / 'ledger.db'}"
    (received.folder.path / "ledger.json").write_text(json.dumps({"url": url}))
    received.seal()
    assert received.call("front", "tiny") == 2
    assert received.call(*VERBS["resume"]) == 2
    assert received.call("status") == 1, "the other search is shown"
    said = capsys.readouterr()
    assert "other" in said.out
    assert f"--ledger {url}" in said.err
    assert received.unharmed()
    assert received.call("front", "tiny", "--ledger", url) == 0
    assert received.call("front", "tiny") == 0


class Listener(BaseHTTPRequestHandler):
    """A server that takes note of who logs in."""

    def do_POST(self):
        server: Any = self.server
        server.heard.append(self.headers.get("Authorization"))
        self.send_error(500)

    do_GET = do_POST

    def log_message(self, *args):
        pass


@pytest.fixture
def listener():
    server: Any = HTTPServer(("127.0.0.1", 0), Listener)
    server.heard = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_tracking_server_only_the_folder_names_hears_nothing_until_it_is_named(
    received, listener, monkeypatch, capsys
):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "hunter2-secret")
    monkeypatch.setattr("bitfront.search.tracking.tracker.CLOSE_SECONDS", 1)
    recipe_of(received)
    uri = f"http://127.0.0.1:{listener.server_port}"
    received.change(tracking={"uri": uri, "patience": 0})
    for verb in ("resume", "extend"):
        assert received.call(*VERBS[verb]) == 2
        said = capsys.readouterr().err
        assert uri in said
        assert "--tracking" in said
    assert received.call("ui", "tiny", "--no-open") == 2
    assert "is not asked" in str(_tracking(received.root, None))
    assert received.call("train", "recipe.yaml") == 0
    assert f"--tracking {uri}" in capsys.readouterr().out
    assert listener.heard == []
    assert received.call(*VERBS["resume"], "--tracking", uri) == 0
    assert "Bearer hunter2-secret" in listener.heard
    listener.heard.clear()
    assert received.call(*VERBS["resume"]) == 0
    assert listener.heard
