"""The homes of a cluster's head: searches there are found by name, whoever submitted them and in
whichever home they are. On any other machine there is one home (`ledger.folder.home`)."""

from __future__ import annotations

import json
from pathlib import Path

from bitfront.search import submission
from bitfront.search.ledger.folder import (
    HOME_FILES,
    SearchFolder,
    home,
    is_name,
    list_searches,
)
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import user_folder, write_atomically
from bitfront.trainables.text_files import read_json, whole_path


def _file() -> Path:
    return user_folder() / "homes.json"


def remember(root: Path) -> None:
    """Store that searches of a cluster are kept in this home, for later lookups. Where the file
    cannot be written, Ray's job list has to do."""
    kept = _kept()
    if str(root) in kept:
        return
    try:
        write_atomically(_file(), json.dumps(sorted({*kept, str(root)}), indent=1) + "\n")
    except (OSError, RuntimeError):
        return


def _kept() -> list[str]:
    try:
        content = read_json(_file())
    except (OSError, UserError, RuntimeError):
        return []
    return [str(each) for each in content] if isinstance(content, list) else []


def known() -> list[Path]:
    """Every home of this head, the one for new searches first."""
    sent = submission.here()
    named = [*_kept(), *(sent.homes if sent else ())]
    others = (whole_path(each) for each in named if each)
    return list(dict.fromkeys([home(), *_below(home()), *others]))


def _below(root: Path) -> list[Path]:
    """The homes in folders of a home. They are found without being noted: a head that was replaced
    has the disk of the former one, or a copy of it, and neither its notes nor its job list."""
    found = {file.parent.parent for file in root.glob("*/*/search.yaml")}
    own = {root / name for name in HOME_FILES}
    return sorted(f for f in found - own if not SearchFolder(f).config_file.exists())


def home_for(name: str | None, given: str | None) -> Path:
    """The home of a search: `given` where it is, else the one in which the head knows the name,
    else the one for new searches."""
    if given is not None or submission.here() is None or name is None or not is_name(name):
        return home(given)
    found = [root for root in known() if SearchFolder(root / name).exists]
    if len(found) > 1:
        places = ", ".join(f"{root} ({owner_of(SearchFolder(root / name))})" for root in found)
        raise UserError(f"there are several searches '{name}': {places}", "say which: --home DIR")
    return found[0] if found else home()


def searches(given: str | None) -> list[SearchFolder]:
    """All searches of a home; on a head those of all its homes."""
    roots = [home(given)] if given is not None or submission.here() is None else known()
    return [folder for root in roots for folder in list_searches(root)]


def owner_of(folder: SearchFolder) -> str:
    """Who submitted a search; of one that was not submitted, the owner of its folder."""
    sent = folder.sent_by
    if sent is not None:
        return sent
    try:
        return folder.path.owner()
    except (OSError, KeyError):  # a user without an account on this machine
        return "-"
