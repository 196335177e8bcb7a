"""Users and their bitfront commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bitfront.search.ledger.states import TrialState
from testbed.rig.processes import end


class User:
    """A user who runs bitfront commands in a folder of their own; `search` is the text of a
    YAML."""

    def __init__(
        self,
        folder: Path,
        search: str,
        env: dict[str, str],
        address: str | None = None,
        inside: list[str] | None = None,
        python: str = sys.executable,
    ) -> None:
        """`python` runs the commands, inside of what `inside` starts."""
        self.folder, self.address = folder, address
        self.inside, self.python = inside or [], python
        self.env = env | {"BITFRONT_HOME": str(folder / "runs"), "PYTHONFAULTHANDLER": "1"}
        folder.mkdir(parents=True, exist_ok=True)
        self.name = search.partition("name:")[2].split()[0]
        self.process: subprocess.Popen[str] | None = None
        (folder / f"{self.name}.yaml").write_text(search)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a bitfront command and return its process."""
        if words[0] in ("run", "resume", "extend") and self.address is not None:
            words = (*words, "--address", self.address)
        self.process = subprocess.Popen(
            [*self.inside, self.python, "-m", "bitfront.cli", *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self.process

    def leave(self) -> None:
        """End the command that was started last."""
        if self.process is not None:
            end(self.process)

    def call(self, *words: str, code: int = 0) -> str:
        """Run a bitfront command to its end, expect the exit code `code`, return what it
        printed."""
        process = self.start(*words)
        out, _ = process.communicate(timeout=200)
        assert process.returncode == code, out
        return out

    def json(self, *words: str) -> Any:
        return json.loads(self.call(*words, "--json"))

    @property
    def search(self) -> Any:
        from bitfront.search.ledger.folder import SearchFolder

        return SearchFolder(self.folder / "runs" / self.name)

    def entries(self) -> list[Any]:
        """The trials of the ledger; none where it cannot be read yet."""
        from bitfront.search.ledger.reader import read_entries

        try:
            return read_entries(self.search.ledger_url, self.name)
        except Exception:  # the driver is just creating the tables, or the database is away
            return []

    def ended(self) -> int:
        return sum(e.state != TrialState.RUNNING for e in self.entries())

    def checkpoints(self) -> list[Path]:
        return list((self.search.path / "trials").glob("*/state.pt"))
