"""Undoing a turn that ended before the first trial: a search that never began leaves nothing
behind, and a search without trials may still change its configuration."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.reader import read_entries
from bitfront.search.ledger.storage import open_storage
from bitfront.search.ledger.study import forget_study
from bitfront.search.tracking.extra_runs import forget_search_run
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically

if TYPE_CHECKING:
    from bitfront.search.config.schema import SearchConfig
    from bitfront.search.ledger.ledger import Ledger


def missing_folders(folder: Path) -> list[Path]:
    """The folders that have to be made for this one, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def has_trials(folder: SearchFolder) -> bool:
    """Whether a search has a trial; a ledger that cannot be read is an error."""
    return folder.exists and bool(read_entries(folder.ledger_url, folder.name, folder.known_owner))


def forget_former(config: SearchConfig, folder: SearchFolder) -> None:
    """Delete the study of a search without trials before it gets another configuration, and its run
    in MLflow: version 0.1 made one before the first trial."""
    forget_study(open_storage(folder.ledger_url), folder.name)
    if config.tracking.enabled:
        forget_search_run(config, folder)


class Beginning:
    """The state of a search's folder before this turn, to which `undo` returns. Made and undone
    under the folder's lock."""

    def __init__(self, folder: SearchFolder) -> None:
        self.folder = folder
        self.ledger: Ledger | None = None
        """of this turn, once it is open"""
        self._new = folder.path in folder.made
        self._kept = {path for path in folder.path.iterdir() if path not in folder.made}
        self._texts = {
            path: path.read_text(encoding="utf-8")
            for path in (folder.config_file, folder.ledger_file)
            if path in self._kept
        }
        self._before = not self._new and self._had_trials()

    def _had_trials(self) -> bool:
        try:
            return has_trials(self.folder)
        except UserError:  # unknown: everything stays
            return True

    @property
    def begun(self) -> bool:
        """Whether the search has a trial now."""
        return bool(self.ledger.entries) if self.ledger is not None else self._before

    def undo(self) -> None:
        """Remove what was made since. What cannot be removed stays: the turn ends with another
        message already."""
        if self.ledger is not None:
            forget_study(self.ledger.storage, self.folder.name)
        with contextlib.suppress(OSError):
            for path in self.folder.path.iterdir():
                if self._new or path not in self._kept:
                    _remove(path)
            for path, text in self._texts.items():
                write_atomically(path, text)
        for path in self.folder.made:
            with contextlib.suppress(OSError):  # no folder, or something of another search in it
                path.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
