"""Several users of one PostgreSQL database: what docs/cluster.md tells them to type is enough for a
search, and a user without rights is told so in one line."""

import re

import pytest

from bitfront import cli
from bitfront.search.cluster.doctor import check_ledger
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.ledger.reader import RIGHTS, read_entries
from bitfront.search.ledger.storage import open_storage
from bitfront.search.ledger.writing import LedgerLostError
from bitfront.search.session.beginning import has_trials
from bitfront.trainables.errors import UserError
from testbed.rig import POSTGRES, ROOT, Postgres

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not POSTGRES, reason="PostgreSQL is not installed"),
]


@pytest.fixture(scope="module")
def server():
    server = Postgres()
    yield server
    server.remove()


TEAM = ROOT / "clusters" / "database.sql"
PAGE = (ROOT / "docs" / "cluster.md").read_text().partition("Several people, one database")[2]


def documented():
    """The blocks of SQL in docs/cluster.md: schemas, grants."""
    blocks = re.findall(r"```sql\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 2
    return blocks


class Database:
    """A database of its own in the server, with names of roles that no other one has."""

    def __init__(self, server, mark):
        self.server, self.mark = server, mark
        server.execute(f"CREATE DATABASE {self.named('bitfront')}")

    def named(self, text):
        return re.sub(r"\b(ann|bob|bitfront)\b", rf"\1_{self.mark}", text)

    def execute(self, text):
        for statement in text.split(";"):
            if statement.strip():
                self.server.execute(self.named(statement), self.named("bitfront"))

    def url(self, person):
        return self.server.url_of(self.named(person), self.named("bitfront"))


def works(database, person):
    """Whether `doctor` and a search of this person say that all is well."""
    assert check_ledger(database.url(person)).verdict == "PASS"


def test_a_role_for_the_team(server, make_space):
    """What one makes all members may use, and nobody else; the file may be run again."""
    assert "-v member=ann -f clusters/database.sql" in PAGE
    for person in ("ann", "bob", "ann"):
        server.execute_file(TEAM, member=person)
    for person in ("ann", "bob"):
        url = server.url_of(person, "bitfront")
        assert check_ledger(url).verdict == "PASS"
        config, space = make_space("search.trials=1", f"name=of-{person}")
        Ledger(url, config, space).ask()
    theirs = read_entries(server.url_of("bob", "bitfront"), "of-ann")
    assert len(theirs) == 1, "they see each other's searches"
    assert server.execute("SELECT current_user", role="ann") == "ann\n", "in other databases"
    server.execute("CREATE ROLE stranger LOGIN")
    refused = check_ledger(server.url_of("stranger", "bitfront"))
    assert (refused.verdict, refused.advice) == ("FAIL", RIGHTS)
    assert 'permission denied for database "bitfront"' in refused.found


def test_what_was_in_the_database_before_becomes_the_teams(server, make_space):
    """Somebody who ran searches alone has made the tables, and keeps what is in them."""
    for name in ("bitfront", "mlflow"):
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    server.execute("CREATE ROLE early LOGIN")
    server.execute("CREATE DATABASE bitfront OWNER early")
    url = server.url_of("early", "bitfront")
    config, space = make_space("search.trials=2", "name=first")
    Ledger(url, config, space).ask()
    for person in ("early", "late"):
        server.execute_file(TEAM, member=person)
        assert check_ledger(server.url_of(person, "bitfront")).verdict == "PASS"
    assert len(read_entries(server.url_of("late", "bitfront"), "first")) == 1


def test_a_server_without_a_locale_is_as_good(server, make_space):
    """Its own databases are in SQL_ASCII; those of the file never are, for MLflow reads one."""
    for name in ("bitfront", "mlflow"):
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    server.execute_file(TEAM, member="ann")
    listed = "SELECT pg_encoding_to_char(encoding), datcollate FROM pg_database WHERE datname = "
    for name in ("bitfront", "mlflow"):
        assert server.execute(f"{listed}'{name}'") == "UTF8|C\n"
    made = "CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
    server.execute(made)
    url = server.url_of("admin", "ascii")
    assert check_ledger(url).verdict == "PASS"
    config, space = make_space("search.trials=1", "name=ascii")
    Ledger(url, config, space).ask()
    assert len(read_entries(url, "ascii")) == 1


def test_a_schema_each(server, make_space):
    database = Database(server, "schema")
    database.execute("CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN")
    database.execute(documented()[0])
    for person in ("ann", "bob"):
        works(database, person)
        config, space = make_space("search.trials=1", "name=same")
        assert Ledger(database.url(person), config, space).ask() is not None
        assert len(read_entries(database.url(person), "same")) == 1, "one name, two searches"


def test_rights_on_the_tables_of_the_first(server, make_space):
    database = Database(server, "grants")
    database.execute("CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN")
    database.execute("GRANT CREATE ON SCHEMA public TO ann")
    works(database, "ann")
    database.execute(documented()[1])
    works(database, "bob")
    config, space = make_space("search.trials=1", "name=of-bob")
    assert Ledger(database.url("bob"), config, space).ask() is not None


def told(folder, config, url, capsys):
    """Somebody without rights who types `run` reads one line and a hint, and keeps nothing."""
    file = folder / "of-bob.yaml"
    file.write_text(config.dump())
    words = ["run", str(file), "--ledger", url, "--home", str(folder / "new"), "--name", "refused"]
    capsys.readouterr()
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(r"error: .*permission denied for.*\n(  .*\n)+", said), said
    assert " ".join(RIGHTS.split()[:6]) in " ".join(said.split())
    assert not (folder / "new").exists()


def test_what_is_not_allowed_is_one_line_with_a_hint(server, make_space, tmp_path, capsys):
    database = Database(server, "none")
    database.execute("CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN")
    config, space = make_space("search.trials=1", "name=of-bob")

    def refused(person, *actions):
        check = check_ledger(database.url(person))
        assert (check.verdict, check.advice) == ("FAIL", RIGHTS)
        assert "permission denied for" in check.found
        assert "\n" not in check.found
        for action in actions:
            with pytest.raises(UserError, match="permission denied for") as error:
                action()
            assert error.value.hint == RIGHTS
            assert "\n" not in error.value.message

    # A new database of PostgreSQL 15 or later lets nobody but its owner make tables.
    database.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    refused("ann", lambda: open_storage(database.url("ann")))
    database.execute("GRANT CREATE ON SCHEMA public TO ann")
    works(database, "ann")
    folder = SearchFolder(tmp_path / "of-bob")
    folder.path.mkdir()
    folder.config_file.write_text(config.dump())
    folder.set_ledger_url(database.url("bob"))
    refused("bob", lambda: open_storage(database.url("bob")), lambda: has_trials(folder))
    database.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO bob")
    with pytest.raises(LedgerLostError, match="permission denied") as error:
        Ledger(database.url("bob"), config, space)
    assert error.value.hint == RIGHTS
    told(tmp_path, config, database.url("bob"), capsys)
    database.execute("GRANT INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO bob")
    database.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO bob")
    refused("bob")  # who may not delete
