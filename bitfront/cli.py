"""The command `bitfront`: finds the verb, runs it, and turns what goes wrong into a line and an
exit code. Verbs are files in `bitfront/verbs/`; nothing heavy is imported before one is named."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from bitfront.parser import CommandParser
from bitfront.search import named
from bitfront.search.caches import settle
from bitfront.search.cluster.head import INTERRUPTED, LOST, leave_without_ray, lost
from bitfront.search.session.interrupts import asked_to_end, ending_gently
from bitfront.search.urls import redacted
from bitfront.terminal.next_commands import TOUR
from bitfront.terminal.tables import filled
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code.trusted import trust_all

# A disk that is full, or that cannot be written any more.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 for success, 1 for a negative result (no front, a
    failed check) or an internal error, 2 for a mistake of the user, 130 after an interrupt (ctrl-C,
    SIGTERM, a closed terminal)."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The name of a file may hold bytes that are not valid text: they are printed escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with ending_gently():
            code = _answer(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:  # outside of `_call`, which prints a message
        code = INTERRUPTED
    if lost() is not None:
        leave_without_ray(code)
    return code


def build_parser() -> CommandParser:
    """The parser of the command line, with all verbs."""
    return CommandParser(epilog=TOUR)


def _answer(argv: Sequence[str]) -> int:
    parser = build_parser()
    try:
        args = parser.parse(argv)
    except UserError as error:
        _complain(error)
        return 2
    if args.version:
        from importlib import metadata  # importing it takes a fifth of the time of --help

        print(f"bitfront {metadata.version('bitfront')}")
        return 0
    if args.verb is None:
        parser.print_help()
        return 0
    action = importlib.import_module(parser.verbs[args.verb].module).action
    return _call(action, args)


def _call(action: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Run the action of a verb and return its exit code; an error becomes a line on standard
    error."""
    settle()
    try:
        _note_trust(args)
        code = action(args)
        sys.stdout.flush()
        return code
    except UserError as error:
        _complain(error)
        return 2
    except BrokenPipeError:
        # The reader of a pipe left (`bitfront front x | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        if lost() is not None and not asked_to_end():
            print(f"error: {lost()}: the same command again continues", file=sys.stderr)
            return LOST
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            place = f" ({error.filename})" if error.filename else ""
            print(f"error: {error.strerror}{place}", file=sys.stderr)
            return 2
        # A bug: its traceback is printed without the secrets of addresses it may quote.
        print(redacted(traceback.format_exc()), end="", file=sys.stderr)
        return 1


def _note_trust(args: argparse.Namespace) -> None:
    """Note the servers that the user names by an option (`verbs.options.trusted`), and whether they
    trust code that others named (`verbs.options.trust`)."""
    trust_all(getattr(args, "trust", False))
    for kind in getattr(args, "trusted", ()):
        url = getattr(args, kind)
        if url:
            named.give(kind, url)


def _complain(error: UserError) -> None:
    """Print the message of an error and its hint, on a terminal wrapped between words."""
    lines = f"error: {redacted(str(error))}".split("\n")
    if sys.stderr.isatty():
        lines = [filled(line) for line in lines]
    print("\n".join(lines), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
