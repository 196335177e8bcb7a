"""What is sent to the head of a cluster: the words of a command, the YAML and the user's own code
that it names, this installation. Secrets are not."""

from __future__ import annotations

import hashlib
from argparse import Namespace
from collections.abc import Sequence
from glob import glob
from importlib import resources
from itertools import pairwise
from pathlib import Path

from bitfront.search.config.source import override, read
from bitfront.search.ledger.folder import home
from bitfront.search.urls import has_secret, know, redacted, sqlite_path
from bitfront.spaces.ready_made import search_file
from bitfront.trainables import own_code
from bitfront.trainables.costs import devices
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code.bundles import files_named
from bitfront.trainables.text_files import whole_path


def is_remote(address: str | None) -> bool:
    """Whether the address is that of a job server."""
    return address is not None and address.startswith(("http://", "https://"))


def shipped_code() -> list[str]:
    """The folder of the installed package, for Ray's `py_modules`."""
    return [str(resources.files("bitfront"))]


def code_digest() -> str:
    """A hash of the installed package: a service with other code is another service."""
    digest = hashlib.sha256()
    for name in sorted(glob("**/*.py", root_dir=shipped_code()[0], recursive=True)):
        digest.update(name.encode() + (Path(shipped_code()[0]) / name).read_bytes())
    return digest.hexdigest()[:10]


def run_words(args: Namespace) -> tuple[list[str], Path | None]:
    """The words of a `run`, `resume` or `extend` for the head, and the YAML to send with `run`."""
    if args.verb in ("resume", "extend"):
        more = ["--trials", str(args.trials)] if args.verb == "extend" else []
        for kind in ("ledger", "tracking", "storage"):
            url = getattr(args, kind, None)
            more += [] if url is None else [f"--{kind}", url]
        return secret_free([args.verb, args.search, *more, *_trusting(args)]), None
    file = search_file(args.search)
    words = ["run", file.name]
    words += [word for given in args.set or [] for word in ("--set", given)]
    words += [word for given in getattr(args, "rows", None) or [] for word in ("--rows", given)]
    for option in ("name", "trials", "data_dir", "ledger", "warm_start"):
        value = getattr(args, option)
        words += [] if value is None else [f"--{option.replace('_', '-')}", str(value)]
    _check_data_dir(args, file)
    ledger = sqlite_path(args.ledger) if args.ledger is not None else None
    if ledger is not None and not ledger.is_absolute():
        raise UserError("--ledger: a job has a folder of its own, give the whole path of the file")
    return secret_free([*words, *_trusting(args)]), file


def _check_data_dir(args: Namespace, file: Path) -> None:
    """Raise UserError for data in a relative folder, which would be one of the job's own."""
    source = read(file)
    override(source, args.set or [])
    task = source.data.get("task")
    written = task.get("data_dir") if isinstance(task, dict) else None
    for what, folder in (("--data-dir", args.data_dir), ("task.data_dir", written)):
        if folder is not None and not str(folder).startswith(("/", "~")):
            raise UserError(
                f"{what} {folder}: a job has a folder of its own, give the whole path on the nodes",
                f"if they have it where you are: {whole_path(folder)}",
            )


def check_home(home: str | None) -> None:
    """Raise UserError for a home in a relative folder, which would be one of the command's own."""
    if home is not None and not home.startswith(("/", "~")):
        raise UserError(
            f"--home {home}: commands on the head have folders of their own, give the whole path "
            "there",
            f"for example ~/bitfront-runs/{home}, in quotes",
        )


def _trusting(args: Namespace) -> list[str]:
    return ["--trust"] if getattr(args, "trust", False) else []


def sent_files(file: Path, words: Sequence[str]) -> dict[str, bytes]:
    """The YAML of a search and the code of the user's own that it and the words of the command
    name, by path: they are put into one folder on the head."""
    own_code.look_in(file.absolute().parent)
    source = read(file)
    override(source, [word for before, word in pairwise(words) if before == "--set"])
    sent = {**files_named(source.data), file.name: file.read_bytes()}
    device = source.data.get("device")
    if device is not None:
        name = device.get("table") if isinstance(device, dict) else device
        sent |= _device_table(str(name), file.absolute().parent)
    return sent


def _device_table(text: str, beside: Path) -> dict[str, bytes]:
    """The device table that a search names, by the path at which it is looked for; nothing where it
    is not here: the head may have it."""
    devices.look_in(home())
    devices.look_in(beside)
    if Path(text).is_absolute() or ".." in Path(text).parts:
        return {}
    try:
        content = devices.named(text)
    except UserError:
        return {}
    return {str(devices.file_of(text, Path())): content.text().encode()}


def secret_free(words: list[str]) -> list[str]:
    """The words themselves; UserError where one contains a secret, since Ray's dashboard shows the
    command of a job."""
    for word in words:
        know(word)
        if redacted(word) != word or has_secret(word):
            raise UserError(
                f"{redacted(word)}: the secret in it would be shown by Ray's dashboard",
                "leave it out and put it where the head finds it: ~/.pgpass, BITFRONT_LEDGER, "
                "MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN in the head's environment",
            )
    return words
