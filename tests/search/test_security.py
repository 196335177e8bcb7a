"""Names stay in their folders, secrets stay out of files and messages, nothing is unpickled that
another user may have written, and pages are for this machine. (What is read is seen in
`tests/test_architecture`; where Ray listens, in docs/security.md.)"""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import yaml
from optuna.trial import TrialState, create_trial

from bitfront.search.config.errors import ConfigError
from bitfront.search.ledger.entry import entry_of
from bitfront.search.ledger.folder import LEDGER, SearchFolder, find, is_name
from bitfront.search.results.results import Results
from bitfront.search.results.stored import stored_config
from bitfront.search.session.preparation import fetched, prepare
from bitfront.search.tracking.mirror import Mirror
from bitfront.search.tracking.store import tracking_uri
from bitfront.search.tracking.tracker import Tracker
from bitfront.search.urls import canonical, redacted, with_secrets, without_secrets
from bitfront.trainables.errors import UserError
from testbed import warm
from testbed.rig import free_port, listens, wait_for

pytestmark = pytest.mark.slow

SECRET = "hunter2"
LEDGER_URL = f"postgresql://me:{SECRET}@127.0.0.1:9/ledger?sslmode=require"
TRACKING = f"http://me:{SECRET}@127.0.0.1:9/mlflow?token={SECRET}"


@pytest.mark.parametrize(
    ("text", "shown", "stored"),
    [
        ("postgresql://me:p@ss@db/x", "postgresql://me:***@db/x", "postgresql://me@db/x"),
        ("postgresql://me:a/b=@db/x", "postgresql://me:***@db/x", "postgresql://me@db/x"),
        ("postgresql://me:a?b#c@db/x?d=e", "postgresql://me:***@db/x?d=e", "postgresql://me@db/x?d=e"),
        ("postgresql:///x?password=a#b;c&d=e", "postgresql:///x?password=***&d=e", "postgresql:///x?d=e"),
        ("http://me:a/b?c@host:5000/", "http://me:***@host:5000/", "http://host:5000/"),
        ("s3://id:a/b+c@bucket/place", "s3://id:***@bucket/place", "s3://id@bucket/place"),
        ("s3://bucket/a@b", "s3://bucket/a@b", "s3://bucket/a@b"),
        ("https://abc123@server/", "https://***@server/", "https://server/"),
        ("http://s/?a=1&api_token=x&b=2", "http://s/?a=1&api_token=***&b=2", "http://s/?a=1&b=2"),
        ("s3://b/k?AWSAccessKeyId=x", "s3://b/k?AWSAccessKeyId=***", "s3://b/k"),
        ("postgresql://me@db/x", "postgresql://me@db/x", "postgresql://me@db/x"),
        ("sqlite:////a/b@c:d/ledger.db", "sqlite:////a/b@c:d/ledger.db", "sqlite:////a/b@c:d/ledger.db"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000", "http://127.0.0.1:5000"),
    ],
)  # fmt: skip
def test_addresses_are_shown_and_stored_without_their_secrets(text, shown, stored):
    assert redacted(f"{text} does not answer") == f"{shown} does not answer"
    assert without_secrets(text) == stored
    assert with_secrets(stored, text) == canonical(text)
    assert with_secrets(stored, "postgresql://me:other@elsewhere/x") == stored


def files_with_secret(folder):
    return [p for p in folder.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]


def test_secrets_of_a_search_are_on_no_disk_and_come_from_the_environment_again(
    make_config, tmp_path, monkeypatch
):
    monkeypatch.setenv(LEDGER, "")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    storage = f"s3://id:{SECRET}@bucket/place"
    config = make_config(f"tracking.uri={TRACKING}", f"storage={storage}")
    assert config.storage == storage
    folder = prepare(config, tmp_path, LEDGER_URL)
    folder.config_file.write_text(config.dump())
    assert folder.ledger_url == LEDGER_URL
    assert tracking_uri(config, tmp_path) == TRACKING
    assert files_with_secret(tmp_path) == []
    monkeypatch.delenv(LEDGER)
    assert folder.ledger_url == "postgresql://me@127.0.0.1:9/ledger?sslmode=require"
    again = stored_config(folder)
    assert again.tracking.uri == "http://127.0.0.1:9/mlflow"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", TRACKING)
    assert tracking_uri(again, tmp_path) == TRACKING
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://other")
    assert tracking_uri(again, tmp_path) == "http://127.0.0.1:9/mlflow"


def test_what_a_failed_trial_says_is_kept_without_secrets(make_space, tmp_path):
    from bitfront.search.session.session import Session

    config, space = make_space()
    session = Session(config, space, SearchFolder(tmp_path), None)
    trial = session.ask()
    session.fail(trial.id, "error", f"cannot read {TRACKING}", f"Traceback: {TRACKING}")
    assert SECRET not in session.ledger.entries[trial.id].message
    assert SECRET not in session.ledger.entries[trial.id].traceback
    assert files_with_secret(tmp_path) == []


def test_a_tracking_server_that_refuses_is_told_of_without_its_password(
    make_space, tmp_path, monkeypatch
):
    monkeypatch.setattr("bitfront.search.tracking.tracker.CLOSE_SECONDS", 3)
    config, _ = make_space(f"tracking.uri={TRACKING}", "tracking.patience=2")
    tracker = Tracker(config, "id", tmp_path)
    tracker.start([])
    tracker.search_metric("hypervolume_share", 0.5, 1)
    problem = tracker.close("complete", {}, "")
    assert problem is not None
    assert SECRET not in problem


def test_the_command_line_keeps_secrets_to_itself(tmp_path, tiny_yaml):
    (tmp_path / "tiny.yaml").write_text(tiny_yaml)
    env = {**os.environ, "BITFRONT_HOME": str(tmp_path / "runs")}
    command = [warm.python(), "-m", "bitfront.cli"]

    def call(*words):
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    code, said = call("run", "tiny.yaml", "--ledger", LEDGER_URL)
    assert code == 2
    assert "the ledger cannot be opened" in said
    assert SECRET not in said
    code, said = call("validate", "tiny.yaml", "--json", "--set", f"tracking.uri={TRACKING}")
    assert code == 0
    assert json.loads(said)["config"]["tracking"]["uri"] == "http://127.0.0.1:9/mlflow"
    assert files_with_secret(tmp_path) == []


def test_where_checkpoints_go_may_come_from_the_environment_and_so_do_its_secrets(
    make_config, monkeypatch
):
    place = f"s3://id:{SECRET}@bucket/place"
    monkeypatch.setenv("BITFRONT_STORAGE", place)
    assert make_config().storage == place
    assert make_config("storage=/mnt/other").storage == "/mnt/other"
    stored = yaml.safe_load(make_config().dump())["storage"]
    assert stored == "s3://id@bucket/place"
    assert make_config(f"storage={stored}").storage == place
    monkeypatch.setenv("BITFRONT_STORAGE", "~/shared")
    assert make_config().storage == str(Path.home() / "shared")


@pytest.mark.parametrize("name", ["..", ".", "../x", "a/b", "/etc", "", "a\n", "-x", "a\0b"])
def test_no_name_leaves_its_folder(name, make_config, tmp_path):
    assert not is_name(name)
    with pytest.raises(UserError, match="unknown search"):
        find(tmp_path, name)
    with pytest.raises(ConfigError):
        make_config(f"name={json.dumps(name)}")
    with pytest.raises(UserError, match="no trial's id"):
        SearchFolder(tmp_path).trial_folder(name)


def test_a_recipe_of_somebody_else_writes_to_no_folder_outside_the_home(tmp_path):
    from bitfront.search.recipes.recipe import load_recipe

    spec = {"task": {"dataset": "digits", "model": {"name": "mlp"}}, "method": "bnn", "plan": "FF"}
    origin = {"search": "../outside", "trial": "t", "number": 0, "bitfront": "1", "exported": "x"}
    recipe = {"bitfront_recipe": 1, "name": "r", "spec": spec, "final": {"epochs": 1, "seeds": [0]}}
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump({**recipe, "provenance": origin}))
    with pytest.raises(UserError, match=r"provenance\.search"):
        load_recipe(file)


def test_a_search_outside_the_home_is_not_found_by_dots(make_config, tmp_path):
    (tmp_path / "search.yaml").write_text(make_config().dump())
    (tmp_path / "home").mkdir()
    with pytest.raises(UserError, match="unknown search"):
        find(tmp_path / "home", "..")


def test_a_stored_search_with_a_name_that_is_a_path_is_refused(make_config, tmp_path):
    data = yaml.safe_load(make_config().dump()) | {"name": "../../elsewhere"}
    folder = SearchFolder(tmp_path / "tiny")
    folder.path.mkdir()
    folder.config_file.write_text(yaml.safe_dump(data))
    with pytest.raises(UserError, match="no name of a search"):
        Results.of(folder)


def test_a_trial_of_the_ledger_with_an_id_that_is_a_path_is_refused():
    trial = create_trial(state=TrialState.RUNNING, user_attrs={"id": "../../home"})
    with pytest.raises(UserError, match="no usable id"):
        entry_of(trial)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_configuration_that_is_no_file_is_damage_and_no_unknown_search(make, tmp_path):
    (tmp_path / "tiny").mkdir()
    make(tmp_path / "tiny" / "search.yaml")
    with pytest.raises(UserError, match=r"tiny/search\.yaml: damaged: not a file"):
        find(tmp_path, "tiny")


@pytest.mark.parametrize("artifact", ["runs:/../x", "runs:/abc/../../x", "runs:/../../etc/passwd"])
def test_an_artifact_is_fetched_into_its_own_folder_only(artifact, make_space, tmp_path):
    config, space = make_space(f"task.pretrain={artifact}")
    with pytest.raises(UserError, match="not an artifact of a run"):
        fetched(config, space, tmp_path)


@pytest.mark.parametrize("name", ["..", "../../x", "/etc"])
def test_an_experiment_keeps_its_artifacts_in_the_home(name, make_space, tmp_path):
    config, _ = make_space(f"tracking.experiment={json.dumps(name)}")
    mirror = Mirror(config, "id", tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}")
    place = mirror.client.get_experiment(mirror.experiment_id).artifact_location
    assert place.startswith((tmp_path / "mlartifacts").as_uri() + "/")
    assert ".." not in place.split("/")


def listening_on(port):
    """Addresses that some process of this machine listens on with this port, as the kernel writes
    them."""
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path("/proc/net", name).read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in lines if row[3] == "0A" if int(row[1][-4:], 16) == port}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets are listed in /proc")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("page", "number"), [("ui", signal.SIGTERM), ("dashboard", signal.SIGINT)])
def test_pages_are_for_this_machine_unless_told_otherwise(page, number, make_config, tmp_path):
    """And end on either signal, with what they have started, even where SIGINT is ignored, as it is
    in the background of a script."""
    config = make_config()
    prepare(config, tmp_path).config_file.write_text(config.dump())
    port = free_port()
    words = [page, "--port", str(port), "--home", str(tmp_path)]
    ignoring = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
    process = subprocess.Popen(
        [*ignoring, warm.python(), "-m", "bitfront.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(lambda: listens(port), 200, f"bitfront {page}", process)
        assert listening_on(port) == {"0100007F"}
    finally:
        process.send_signal(number)
        said = process.communicate(timeout=120)[0]
    assert "warning" not in said
    assert "Traceback" not in said
    assert not listens(port)
