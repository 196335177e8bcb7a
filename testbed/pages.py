"""Pages as a reader follows them: files are written, commands run by a shell."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from testbed import warm

BLOCK = re.compile(
    r"^(?:<!-- (?P<note>\w+) -->\n)?```(?P<language>\w+)\n(?P<content>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
# The first line of a block that is a file: its name.
NAME = re.compile(r"# ([\w.-]+\.(?:py|yaml))\n")
SECONDS = 240


@dataclass(frozen=True)
class Block:
    """A block of a page. `note`: the comment before it, such as `fails`; `name`: of the file that
    it is, or empty."""

    note: str
    language: str
    content: str
    name: str


def blocks(text: str) -> list[Block]:
    """The blocks of code of a page, in their order."""
    found = []
    for match in BLOCK.finditer(text):
        named = NAME.match(match["content"])
        name = named.group(1) if named else ""
        found.append(Block(match["note"] or "", match["language"], match["content"], name))
    return found


def environment() -> dict[str, str]:
    """The environment of a user who has bitfront's environment activated."""
    return {**warm.environment(), "COLUMNS": "100"}


def run(commands: str, folder: Path, code: int = 0) -> str:
    """Run the commands of a block in a folder; what they printed. An AssertionError unless the exit
    code is `code`, or where a traceback is printed."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == code, f"{commands}: exit code {done.returncode}\n{done.stdout}"
    assert "Traceback" not in done.stdout, f"{commands}\n{done.stdout}"
    return done.stdout
