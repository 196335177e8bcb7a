"""The folder of a search: where its files are, how it is found by name, and the lock that allows
one driver at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bitfront.search import named, submission
from bitfront.search.urls import (
    canonical,
    redacted,
    sqlite_path,
    sqlite_url,
    with_secrets,
    without_secrets,
)
from bitfront.trainables.errors import UserError, did_you_mean, quoted
from bitfront.trainables.files import (
    discard,
    opened,
    refuse_link,
    refuse_links,
    within,
    write_atomically,
)
from bitfront.trainables.text_files import NoSuchFileError, read_json, read_text, whole_path
from bitfront.trainables.worker import storage

DEFAULT_HOME = "bitfront-runs"
# The environment variable with the URL of the ledger's database, and perhaps its password.
LEDGER = "BITFRONT_LEDGER"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Other files and folders of a home: no search may have one of these names.
HOME_FILES = ("code", "data", "devices", "mlartifacts", "mlflow.db", "pretrained", "selections")

# Files that a search with trials writes into its folder when a turn ends, and after it.
RESULTS = ("front.csv", "front.html", "report.html", "delivered", "finals.jsonl", "exhausted")


def is_name(text: str) -> bool:
    """Whether this may be the name of a search, a trial or a run: no name leads out of its
    folder."""
    return NAME.fullmatch(text) is not None


def home(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder of all searches: `--home`, else BITFRONT_HOME, else ./bitfront-runs."""
    chosen = given or os.environ.get("BITFRONT_HOME") or DEFAULT_HOME
    return whole_path(chosen)


def pretrained_folder(root: Path) -> Path:
    """The folder of pretrained networks, which all searches of a home share."""
    return within(root, root / "pretrained")


def code_folder(root: Path) -> Path:
    """The folder of classes and functions that were passed in Python and have no file."""
    return within(root, root / "code")


def data_folder(root: Path) -> Path:
    """The folder of data that were passed in Python."""
    return within(root, root / "data")


def selections_folder(root: Path) -> Path:
    """The folder of the results of selectors, which all searches of a home share."""
    return within(root, root / "selections")


@dataclass(frozen=True)
class SearchFolder:
    """One search on disk."""

    path: Path
    made: tuple[Path, ...] = field(default=(), compare=False)
    """the paths that were made for it in this turn, the innermost first"""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config_file(self) -> Path:
        return self.path / "search.yaml"

    @property
    def lock_file(self) -> Path:
        return self.path / "lock"

    @property
    def ledger_file(self) -> Path:
        """The file that names the database of a ledger which is not beside the YAML."""
        return self.path / "ledger.json"

    @property
    def ledger_url(self) -> str:
        """The URL of the ledger: SQLite beside the YAML, unless `ledger_file` names a database."""
        file = self.ledger_file
        try:
            content = read_json(file)
        except NoSuchFileError:
            for suffix in ("", "-wal", "-shm", "-journal"):  # SQLite follows links
                refuse_link(self.path / f"ledger.db{suffix}")
            ledger = self.path / "ledger.db"
            if ledger.exists() and not ledger.is_file():  # SQLite waits for a pipe
                raise UserError(f"{ledger}: damaged: not a file") from None
            return sqlite_url(ledger)
        stored = content.get("url") if isinstance(content, dict) else None
        if not isinstance(stored, str):
            raise UserError(f"{file}: damaged: it names no database")
        # Anything but the canonical form may reach another server than it seems to.
        if stored != without_secrets(canonical(stored)):
            raise UserError(f"{file}: damaged: not an address as it is stored")
        named.check("ledger", stored, self.name)
        return with_secrets(stored, named.given("ledger"))

    def check_ledger(self) -> None:
        """Raise UserError where the file of the ledger is gone although the search has results."""
        file = sqlite_path(self.ledger_url)
        if file is None or file.exists():
            return
        found = [name for name in RESULTS if (self.path / name).exists()]
        if found:
            raise UserError(
                f"search '{self.name}': its ledger {file} is missing, and with it all its trials "
                f"({found[0]} shows that it had some)",
                f"put the file back; to begin anew, move {self.path} away",
            )

    @property
    def owner(self) -> str | None:
        """The identity of a search whose ledger is in a database that may hold other searches
        too."""
        return self.identity if self.ledger_file.exists() else None

    @property
    def known_owner(self) -> str | None:
        """The same for somebody who only reads: None where there is no identity yet."""
        return self.owner if (self.path / "identity").is_file() else None

    def set_ledger_url(self, url: str) -> None:
        named.remember("ledger", url)
        stored = without_secrets(canonical(url))
        write_atomically(self.ledger_file, json.dumps({"url": stored}))

    @property
    def exists(self) -> bool:
        return self.config_file.is_file()

    @property
    def identity(self) -> str:
        """A random name that tells this search from others of the same name in shared databases and
        tracking servers; made when it is first asked for."""
        file = self.path / "identity"
        if not file.exists():
            write_atomically(file, uuid.uuid4().hex[:12])
        found = read_text(file, stored=True).strip()
        if not is_name(found):
            raise UserError(f"{file}: damaged: {quoted(found)} is no identity of a search")
        return found

    def trial_folder(self, trial_id: str) -> Path:
        if not is_name(trial_id):
            raise UserError(f"'{trial_id}' is no trial's id: the ledger of {self.name} is damaged")
        return within(self.path, self.path / "trials" / trial_id)

    @property
    def running(self) -> bool:
        """Whether a driver holds the lock now."""
        file = self.lock_file
        if not file.is_file() or file.is_symlink():
            return False
        with opened(file, "r") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            return False

    @property
    def driver(self) -> tuple[str, int] | None:
        """Host and process id of the driver that holds the lock now; None where there is none."""
        if not self.running:
            return None
        try:
            holder = read_json(self.path / "lock")
            host, pid = holder["host"], holder["pid"]
        except (
            UserError,
            KeyError,
            TypeError,
        ):  # the lock is taken, but its holder is not written yet
            return None
        return (host, pid) if isinstance(host, str) and type(pid) is int and pid > 0 else None

    @property
    def job(self) -> str | None:
        """The job on a cluster that had the last turn at this search; None where it was none."""
        try:
            found = read_json(self.lock_file).get("job")
        except (UserError, AttributeError):
            return None
        return found if isinstance(found, str) and found else None

    @property
    def sent_by(self) -> str | None:
        """Who submitted this search to a cluster; None where nobody did."""
        try:
            text = read_text(self.path / "sent-by", stored=True).strip()
        except UserError:
            return None
        return text[:100] or None

    @property
    def waits(self) -> str | None:
        """Why the running driver has no place for a trial yet; None where it has, or none runs."""
        if not self.running:
            return None
        try:
            return read_text(self.path / "waits", stored=True).strip()[:500] or None
        except UserError:
            return None

    def note_wait(self, why: str | None) -> None:
        """Note for others why no trial of this turn has a place yet; None once one has."""
        file = self.path / "waits"
        with contextlib.suppress(OSError):  # it is for who looks on
            if why is not None:
                write_atomically(file, why)
            else:
                file.unlink(missing_ok=True)

    def note_sender(self) -> None:
        """Note who submits this search, where it is a new one."""
        sent, file = submission.here(), self.path / "sent-by"
        if sent is not None and not file.exists() and not self.exists:
            write_atomically(file, sent.owner)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the search; UserError where another process has it. The lock ends with
        the process, however that ends."""
        handle = None
        for _ in range(5):
            handle = self._try_lock()
            if handle is not None:
                break
            time.sleep(0.1)
        if handle is None:
            raise UserError(
                f"search '{self.name}' is running in another process",
                f"watch it: bitfront status {self.name}{submission.back()}",
            )
        with handle:
            handle.truncate(0)
            sent = submission.here()
            holder = {"host": socket.gethostname(), "pid": os.getpid()}
            handle.write(json.dumps({**holder, "job": sent.job if sent else ""}))
            handle.flush()
            self.note_wait(None)
            # Workers write into these folders, which may have come with a search of somebody else.
            refuse_links(self.path / "trials")
            refuse_links(self.path / "weights")
            yield

    def _try_lock(self) -> IO[str] | None:
        """The locked file; None where another process holds it (`running` does for an instant) or
        has just deleted it with a search that never began."""
        file = self.lock_file
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            handle = opened(file)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle.fileno()), file.stat()):
                return handle
        except OSError:
            pass
        handle.close()
        return None


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an OSError into a UserError about a folder that cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written: {error.strerror or error}",
            "searches live elsewhere with --home DIR or BITFRONT_HOME",
        ) from None


def find(root: Path, name: str) -> SearchFolder:
    """The folder of an existing search, by name."""
    folder = SearchFolder(root / name)
    if is_name(name) and folder.config_file.exists() and not folder.exists:
        raise UserError(f"{folder.config_file}: damaged: not a file")
    if not is_name(name) or not folder.exists:
        known = [f.name for f in list_searches(root)]
        hint = did_you_mean(name, known) if known else f"no search has been run in {root}"
        raise UserError(f"unknown search '{name}', {hint}")
    return folder


def list_searches(root: Path) -> list[SearchFolder]:
    """All searches of a home, the one started last at the end."""
    folders = (SearchFolder(file.parent) for file in root.glob("*/search.yaml"))
    return sorted(folders, key=lambda f: _written_at(f.config_file))


def _written_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # deleted since, or a link to nowhere
        return 0.0


class Checkpoints:
    """Where the checkpoints of a search's trials are: in its folder, or in a storage that all nodes
    share."""

    def __init__(self, folder: SearchFolder, place: str | None, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self.shared = place and storage.join(place, f"{folder.name}-{folder.identity}")
        """the folder of this search in the shared storage, if there is one"""
        weights = within(folder.path, folder.path / "weights")
        self._weights = str(weights) if self.shared is None else f"{self.shared}-weights"

    def place(self, trial_id: str) -> str:
        """Where the checkpoint of a trial is kept."""
        if self.shared is None:
            return str(self._folder.trial_folder(trial_id))
        return storage.join(self.shared, trial_id)

    def forget(self, trial_id: str) -> None:
        """Delete the checkpoint of a trial that has ended."""
        discard(self._folder.trial_folder(trial_id))
        if self.shared is not None:
            self._forget(self.place(trial_id))

    def look(self, trial_id: str) -> str:
        """Where the checkpoint of the look of a trial is kept."""
        return self.place(f"{trial_id}-look")

    def forget_look(self, trial_id: str) -> None:
        """Delete the checkpoint of a look that has ended."""
        self.forget(f"{trial_id}-look")

    def weights(self, trial_id: str) -> str:
        """The file of the weights that a finished trial leaves to others."""
        return storage.join(self._weights, trial_id, "state.pt")

    def forget_weights(self, trial_id: str) -> None:
        """Delete what a finished trial left to others."""
        self._forget(storage.join(self._weights, trial_id))

    def forget_all(self) -> None:
        """Delete what trials left."""
        discard(self._folder.path / "trials")
        if self.shared is not None:
            self._forget(self.shared)

    def _forget(self, place: str) -> None:
        """Delete a folder of the shared storage. Where that is away, say so: the trial is not to
        blame."""
        try:
            storage.forget(place)
        except Exception as error:  # every object store has faults of its own
            self._say(redacted(f"{place} could not be deleted: {error}"))
