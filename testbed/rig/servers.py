"""Servers that searches use: MLflow, PostgreSQL, and one that answers as S3 does."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed import warm
from testbed.rig.processes import end, free_port, listens, wait_for

# The superuser of a test's PostgreSQL, who may do everything.
ADMIN = "admin"
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@contextmanager
def tracking_server(
    folder: Path, port: int, python: str | None = None
) -> Iterator[subprocess.Popen[Any]]:
    """A real MLflow server on loopback, over SQLite. It is forked where no `python` is given: then
    it is no child of the process that is returned."""
    process = start_tracking_server(folder, port, python=python)
    try:
        yield process
    finally:
        end(process)


def start_tracking_server(
    folder: Path, port: int, host: str = "127.0.0.1", python: str | None = None
) -> subprocess.Popen[Any]:
    python = python or warm.python()
    command = [python, "-m", "mlflow", "server", "--host", host, "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'server.db'}", "--workers", "1"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    # Without MLflow's job runners, a dozen processes that are not used here.
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("a") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, cwd=folder, env=env
        )


class Postgres:
    """A PostgreSQL server from Debian's packages, in a temporary folder that `remove` deletes."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.folder, self.port = Path(tempfile.mkdtemp(prefix="postgres")), free_port()
        self.host = host
        self.process: subprocess.Popen[Any] | None = None
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            account = pwd.getpwnam("postgres")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        self._call("initdb", "-D", str(self.folder / "data"), "-A", "trust", "-U", ADMIN)
        if host != "127.0.0.1":
            with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {host}/24 trust\n")
        self.start()
        self._call("createdb", *self._there(), "-U", ADMIN, "ledger")

    @property
    def url(self) -> str:
        return self.url_of(ADMIN)

    def url_of(self, role: str, database: str = "ledger") -> str:
        """The address of a database for one of its users."""
        return f"postgresql://{role}@{self.host}:{self.port}/{database}"

    def execute(self, statements: str, database: str = "ledger", role: str = ADMIN) -> str:
        """Let a user, by default the one who may do everything, execute SQL; return what it
        printed."""
        told = ["-d", database, "-U", role, "-v", "ON_ERROR_STOP=1", "-qAtc", statements]
        return self._call("psql", *self._there(), *told)

    def execute_file(self, file: Path, **variables: str) -> None:
        """Let psql execute a file of SQL, with variables, as an administrator would."""
        given = [word for name, text in variables.items() for word in ("-v", f"{name}={text}")]
        told = ["-d", "postgres", "-U", ADMIN, "-v", "ON_ERROR_STOP=1", "-q", *given]
        copy = self.folder / file.name  # which the server's user may read
        copy.write_text(file.read_text())
        self._call("psql", *self._there(), *told, "-f", str(copy))

    def _there(self) -> list[str]:
        return ["-h", self.host, "-p", str(self.port)]

    def _words(self, program: str) -> list[str]:
        prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        return [*(prefix if os.getuid() == 0 else []), str(POSTGRES[-1] / program)]

    def _call(self, program: str, *arguments: str) -> str:
        command = [*self._words(program), *arguments]
        done = subprocess.run(command, check=True, capture_output=True, cwd=self.folder, text=True)
        return done.stdout

    def start(self) -> None:
        command = [*self._words("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        command += ["-c", f"listen_addresses={self.host}", "-k", str(self.folder)]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, cwd=self.folder
            )
        wait_for(self._answers, 200, "PostgreSQL")

    def _answers(self) -> bool:
        command = [*self._words("pg_isready"), *self._there()]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def stop(self, sign: int = signal.SIGQUIT) -> None:
        if self.process is not None:
            end(self.process, sign)
            self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class ObjectStore:
    """A server that answers as S3 does, with one bucket; it forgets what it has when it ends."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.host, self.port = host, free_port()
        command = [sys.executable, "-m", "moto.server", "-H", host, "-p", str(self.port)]
        with (folder / "objects.log").open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, cwd=folder
            )

    def ready(self) -> None:
        """Wait until it answers, and make the bucket."""
        wait_for(lambda: listens(self.port, self.host), 60, "the object store", self.process)
        self._filesystem().create_dir("bucket")

    @property
    def place(self) -> str:
        """The storage of a search there."""
        return "s3://bucket/bitfront"

    @property
    def env(self) -> dict[str, str]:
        """What nodes have in their environment to reach it."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.host}:{self.port}",
            "AWS_ACCESS_KEY_ID": "team",
            "AWS_SECRET_ACCESS_KEY": "team",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def files(self) -> list[str]:
        """The paths of all files in the bucket."""
        from pyarrow.fs import FileSelector, FileType

        found = self._filesystem().get_file_info(FileSelector("bucket", recursive=True))
        return [info.path for info in found if info.type == FileType.File]

    def _filesystem(self) -> Any:
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            access_key="team",
            secret_key="team",
            endpoint_override=f"http://{self.host}:{self.port}",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def stop(self) -> None:
        end(self.process)
