"""Where other libraries keep caches and settings when the user's home cannot be written, as in many
containers: a temporary folder of this user. Not the home of the searches, which may come from
somebody else: settings can name programs to run."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

FOLDERS = {
    "MPLCONFIGDIR": "matplotlib",
    "NUMBA_CACHE_DIR": "numba",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_HOME": "torch",
    "TRITON_HOME": "triton",
    "XDG_CACHE_HOME": "",
}


def home_takes_files() -> bool:
    """Whether the user has a home that can be written."""
    try:
        home = Path.home()
    except RuntimeError:  # a user without one
        return False
    return home.is_dir() and os.access(home, os.W_OK)


def settle() -> None:
    """Set the environment variables of FOLDERS where needed. Call it before those libraries are
    imported."""
    if home_takes_files():
        return
    missing = {name: folder for name, folder in FOLDERS.items() if name not in os.environ}
    if missing:
        base = _own_folder()
        os.environ.update({name: str(base / folder) for name, folder in missing.items()})


def _own_folder() -> Path:
    """The temporary folder of this user: the same one every time, unless another user has made
    it."""
    folder = Path(tempfile.gettempdir()) / f"bitfront-{os.getuid()}-caches"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        ours = found.st_uid == os.getuid() and not found.st_mode & 0o077
        if stat.S_ISDIR(found.st_mode) and ours:
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="bitfront-caches-"))
