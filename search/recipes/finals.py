"""The record of final trainings in the folder of the search their recipes came from, written by
`bitfront train`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bitfront.search.ledger.folder import SearchFolder
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import opened
from bitfront.trainables.text_files import NoSuchFileError, parse_json, read_text

FILE = "finals.jsonl"


@dataclass(frozen=True)
class FinalTraining:
    """The final training of one seed of a recipe."""

    recipe: str
    trial: str
    method: str
    plan: str
    seed: int
    epochs: int
    checkpoint: str
    seconds: float
    ended: float
    metrics: dict[str, float] = field(default_factory=dict)
    """on the test set"""
    rest: str = "float32"
    """how the packed checkpoint stores values that are not binary"""
    keep: str = "last"
    """which epoch was tested: the last one, or the best on a validation part held out"""

    @property
    def key(self) -> str:
        kept = "" if self.keep == "last" else f"/{self.keep}"
        rest = "" if self.rest == "float32" else f"/{self.rest}"
        return f"{self.recipe}/{self.epochs}/{self.seed}{kept}{rest}"


def final_trainings(folder: SearchFolder, skip_damaged: bool = False) -> list[FinalTraining]:
    """The latest training of every recipe and seed. A damaged line raises, or is left out."""
    path = folder.path / FILE
    try:
        text = read_text(path, stored=True)
    except UserError as error:
        if skip_damaged or isinstance(error, NoSuchFileError):
            return []
        raise
    check = TypeAdapter(FinalTraining)
    found = []
    # What follows the last line end was interrupted while it was written.
    for number, line in enumerate(text.split("\n")[:-1], 1):
        if not line.strip():
            continue
        try:
            found.append(check.validate_python(parse_json(line, FILE)))
        except (UserError, ValidationError) as error:
            if skip_damaged:
                continue
            reason = "not a line of JSON"
            if isinstance(error, ValidationError):
                first = error.errors()[0]
                reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise UserError(f"{path}:{number} damaged: {reason}") from None
    return list({final.key: final for final in found}.values())


def note_finals(folder: SearchFolder, finals: list[FinalTraining]) -> Path:
    """Append trainings to the record and return its file. Of a training that is recorded twice
    `final_trainings` returns the last one."""
    path = folder.path / FILE
    _drop_half_a_line(path)
    with opened(path) as out:
        for final in finals:
            out.write(json.dumps(asdict(final)) + "\n")
    return path


def _drop_half_a_line(path: Path) -> None:
    """Remove an incomplete last line, left by a full disk, so that the next line begins a new
    one."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
