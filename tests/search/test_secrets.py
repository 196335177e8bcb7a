"""Passwords as people write them into addresses, with whatever is in them: kept out of all that is
stored and shown, and still good to log in with."""

import json
import sys
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, make_url, text

from bitfront import cli
from bitfront.search import named
from bitfront.search.cluster.doctor import check_ledger
from bitfront.search.cluster.remote.words import secret_free
from bitfront.search.ledger.folder import LEDGER, SearchFolder
from bitfront.search.results.stored import stored_config
from bitfront.search.session.preparation import prepare
from bitfront.search.session.session import Session
from bitfront.search.tracking.store import tracking_uri
from bitfront.search.tracking.tracker import Tracker
from bitfront.search.urls import (
    canonical,
    know,
    redacted,
    with_driver,
    with_secrets,
    without_secrets,
)
from bitfront.trainables.errors import UserError
from testbed.rig import POSTGRES, Postgres, free_port, listens, tracking_server, wait_for
from testbed.rig.servers import ADMIN

pytestmark = pytest.mark.slow

SECRET = "hunter2"
AWKWARD = [
    "?",
    "#",
    "/",
    "@",
    "%",
    " ",
    ":",
    "&",
    "=",
    ";",
    "+",
    "'",
    '"',
    "\\",
    "[",
    "é",
    "雪",
    "%zz",
]
MIXED = f"a?{SECRET}#/@: %;é&="
STORED = "postgresql://me@db.example:5432/ledger?sslmode=require"
# Any text but control characters, and rather the ones that mean something in an address.
PASSWORDS = st.lists(
    st.sampled_from([*AWKWARD, "1", "5000", "a"])
    | st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]),
    min_size=1,
    max_size=12,
).map("".join)


def files_with_secret(folder):
    return [p for p in folder.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # on a busy machine
@given(PASSWORDS)
@example("p?w")
@example("a@b@c")
@example("1/")
@example("100%41")
@example("a?b=c")
def test_the_password_of_a_database_is_told_from_its_address(password):
    url = f"postgresql://me:{password}@db.example:5432/ledger?sslmode=require"
    try:
        address = canonical(url)
    except UserError:  # `@host/x?y=`: nobody can tell
        assert "@" in password
        assert "?" in password
        return
    assert without_secrets(url) == without_secrets(address) == STORED
    assert with_secrets(STORED, url) == address
    seen = make_url(address)
    assert (seen.username, seen.password) == ("me", unquote(password))
    assert (seen.host, seen.port, seen.database) == ("db.example", 5432, "ledger")


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # on a busy machine
@given(PASSWORDS)
@example("p?w")
@example("a/b")
@example("#")
@example("5000/a")
def test_the_password_of_a_server_is_told_from_its_address_or_asked_for_in_quotes(password):
    url = f"http://me:{password}@host.example:5000/mlflow"
    try:
        address = canonical(url)
    except UserError:  # a port or a path, or part of a password
        assert any(sign in password for sign in "/?#")
        assert any(sign in password for sign in "@0123456789")
        return
    assert without_secrets(url) == without_secrets(address) == "http://host.example:5000/mlflow"
    seen = urlsplit(address)
    assert (seen.username, unquote(seen.password)) == ("me", unquote(password))
    assert (seen.hostname, seen.port, seen.path) == ("host.example", 5000, "/mlflow")


@pytest.mark.parametrize(
    "url",
    [
        f"http://host:5000/{SECRET}@b",
        f"https://{SECRET}/x@server",
        f"http://me:a@{SECRET}/b@host",
        f"postgresql://db:5432/x?{SECRET}=a@b",
        f"postgresql://me:{SECRET}@db/x?user=a@b",
    ],
)
def test_an_address_of_which_nobody_can_tell_is_refused_without_being_shown(url):
    with pytest.raises(UserError, match="where its password ends") as refused:
        canonical(url)
    assert SECRET not in str(refused.value)
    assert "%40" in str(refused.value)


@given(PASSWORDS, PASSWORDS, st.sampled_from(["postgresql", "http", "https", "s3"]))
def test_no_sentence_shows_a_password(start, end, scheme):
    # Of a password that may as well be a port and a path, only a search that has it can know.
    assume(not start[0].isdigit())
    url = f"{scheme}://me:{start}{SECRET}{end}@host.example/place"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bitfront.search.urls._known", set())
        know({"tracking": [{"uri": url}]})
        for shown in (url, repr(url), json.dumps(url), canonical_or_same(url)):
            assert SECRET not in redacted(f"cannot reach {shown}: no answer from {shown}")


def canonical_or_same(url):
    try:
        return canonical(url)
    except UserError:
        return url


@pytest.mark.parametrize("sign", AWKWARD)
def test_neither_files_nor_messages_nor_jobs_have_an_awkward_password(
    sign, make_config, tmp_path, monkeypatch
):
    password = f"a{sign}{SECRET}{sign}b"
    ledger = f"postgresql://me:{password}@db.example/ledger"
    server = f"http://me:{password}@host.example:5000"
    monkeypatch.setenv(LEDGER, "")
    config = make_config(f"tracking.uri={json.dumps(server)}")
    folder = prepare(config, tmp_path / "home", ledger)
    folder.config_file.write_text(config.dump())
    assert files_with_secret(tmp_path) == []
    assert json.loads((folder.path / "ledger.json").read_text())["url"] == (
        "postgresql://me@db.example/ledger"
    )
    assert make_url(folder.ledger_url).password == unquote(password)
    assert stored_config(folder).tracking.uri == "http://host.example:5000"
    assert unquote(urlsplit(tracking_uri(config, tmp_path)).password) == unquote(password)
    assert SECRET not in yaml.safe_dump(config.open_data())
    for word in (ledger, f"tracking.uri={server}"):
        with pytest.raises(UserError) as refused:
            secret_free(["run", "--set", word])
        assert SECRET not in str(refused.value)


def test_a_traceback_and_a_mistaken_option_are_shown_without_the_password(monkeypatch, capsys):
    url = f"postgresql://me:a {SECRET}?# b@db.example/x"

    def broken(args):
        raise RuntimeError(f"could not connect to {url} as {args.ledger!r}")

    monkeypatch.setattr("bitfront.verbs.results.front.action", broken)
    words = ["front", "tiny", "--ledger", url]
    monkeypatch.setattr(sys, "argv", ["bitfront", *words])
    assert cli.main(words) == 1
    said = capsys.readouterr()
    assert "could not connect" in said.err
    assert SECRET not in said.out + said.err
    words[2] = "--leger"
    monkeypatch.setattr(sys, "argv", ["bitfront", *words])
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err


@pytest.mark.skipif(not POSTGRES, reason="PostgreSQL is not installed (apt-get install postgresql)")
def test_postgresql_takes_awkward_passwords_and_keeps_none(make_space, tmp_path, monkeypatch):
    monkeypatch.delenv(LEDGER, raising=False)
    server = Postgres()
    passwords = [*(f"a{sign}{SECRET}" for sign in AWKWARD), MIXED]
    try:
        with create_engine(with_driver(server.url)).connect() as connection:
            for number, password in enumerate(passwords):
                quoted = unquote(password).replace("'", "''").replace("\\", "\\\\")
                role = f"CREATE ROLE me{number} LOGIN SUPERUSER PASSWORD E'{quoted}'"
                connection.exec_driver_sql(role.replace("%", "%%"))
            connection.commit()
        rules = f"host all {ADMIN} 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (server.folder / "data" / "pg_hba.conf").write_text(rules)
        server.stop()
        server.start()
        urls = [
            server.url.replace(f"{ADMIN}@", f"me{number}:{password}@")
            for number, password in enumerate(passwords)
        ]
        checks = [check_ledger(url) for url in urls]
        assert [c.verdict for c in checks] == ["PASS"] * len(urls), checks
        wrong = check_ledger(server.url.replace(f"{ADMIN}@", f"me0:{MIXED}@"))
        assert wrong.verdict == "FAIL"
        assert SECRET not in "".join(str(c) for c in [*checks, wrong])
        config, space = make_space()
        folder = prepare(config, tmp_path / "home", urls[-1])
        session = Session(config, space, folder, None)
        entry = session.ask()
        session.fail(entry.id, "error", f"no connection to {urls[-1]}")
        assert files_with_secret(tmp_path) == []
        with create_engine(with_driver(server.url)).connect() as connection:
            tables = ["trial_user_attributes", "study_user_attributes", "trial_system_attributes"]
            rows = [list(connection.execute(text(f"SELECT * FROM {name}"))) for name in tables]
        assert rows[0]
        assert SECRET not in str(rows)
    finally:
        server.remove()


@pytest.mark.timeout(300)
def test_mlflow_prints_no_address_of_a_run_and_keeps_no_password(
    make_space, tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr("bitfront.search.tracking.tracker.FLUSH_SECONDS", 0.1)
    port = free_port()
    with tracking_server(tmp_path, port) as process:
        wait_for(lambda: listens(port), 200, "MLflow", process)
        config, space = make_space(f"tracking.uri=http://me:{SECRET}%3F@127.0.0.1:{port}")
        folder = SearchFolder(tmp_path / "home" / "tiny")
        folder.path.mkdir(parents=True)
        tracker = Tracker(config, "id", folder.path.parent)
        session = Session(config, space, folder, tracker)
        tracker.start([])
        row = {"epoch": 1, "val_accuracy": 0.5, "train_loss": 0.5}
        session.finish(session.ask().id, {**row, "history": [row]})
        session.fail(session.ask().id, "error", f"cannot reach {tracker.uri}")
        assert tracker.close("complete", {}, "") is None
        said = capfd.readouterr()
        runs = tracker.mirror.client.search_runs([tracker.mirror.experiment_id])
    assert len(runs) == 3
    assert SECRET not in said.out + said.err
    assert "View run" not in said.out
    assert files_with_secret(tmp_path) == []


# --- naming -------------------------------------------------------------------------------------


def test_what_is_named_once_is_known_in_later_commands_and_without_its_password(monkeypatch):
    url = f"postgresql://me:{SECRET}@db.example/ledger"
    with pytest.raises(UserError, match=r"db\.example"):
        named.check("ledger", url, "tiny")
    named.give("ledger", url)
    monkeypatch.setattr("bitfront.search.named._now", set())  # another process
    monkeypatch.setattr("bitfront.search.named._given", {})
    named.check("ledger", "postgresql://you@db.example/other", "tiny")
    assert SECRET not in named.file().read_text()
    for other in (
        "postgresql://me@db.example:6432/ledger",
        "postgresql://me@evil.example/ledger",
        "postgresql://me@db.example/ledger?host=evil.example",
        "postgresql+other://me@db.example/ledger",
    ):
        with pytest.raises(UserError):
            named.check("ledger", other, "tiny")
    with pytest.raises(UserError):  # of another kind
        named.check("tracking", url, "tiny")


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("ledger", "postgresql://db.example/x"),
        ("ledger", "sqlite:////srv/other.db"),
        ("tracking", "http://127.0.0.1:5000"),
        ("tracking", "file:///srv/mlruns"),
        ("storage", "s3://bucket/place"),
        ("storage", "/srv/storage"),
    ],
)
def test_what_the_environment_names_is_named(kind, url, monkeypatch):
    monkeypatch.delenv(named.VARIABLES[kind], raising=False)
    with pytest.raises(UserError, match=f"--{kind}|which you have not named"):
        named.check(kind, url, "tiny")
    monkeypatch.setenv(named.VARIABLES[kind], url)
    named.check(kind, url, "tiny")


def test_a_home_brings_no_names_of_its_own_and_a_damaged_list_names_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("BITFRONT_HOME", str(tmp_path))
    assert not named.file().is_relative_to(tmp_path / "bitfront-runs")
    for damaged in ("{", "[1, null]", '{"a": 1}', "\udcff"):
        named.file().parent.mkdir(parents=True, exist_ok=True)
        named.file().write_text(damaged, errors="surrogateescape")
        assert not named.is_named("ledger", "postgresql://db.example/x")
    named.remember("ledger", "postgresql://db.example/x")
    assert json.loads(named.file().read_text()) == ["ledger postgresql://db.example"]


def test_where_nothing_can_be_kept_a_name_holds_for_the_command(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    named.remember("ledger", "postgresql://db.example/x")
    named.check("ledger", "postgresql://db.example/x", "tiny")


@pytest.mark.parametrize("text", ["postgresql:bob:s9Zq@h/db", "bob:s9Zq@h/db"])
def test_what_is_no_address_is_not_remembered_as_one(text, tmp_path, monkeypatch):
    from bitfront.search import named

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    named.remember("ledger", text)
    assert not named.file().exists()
