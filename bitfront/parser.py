"""The parser of the command line: argparse with messages of one line, and help in groups. Which
verbs there are is in `verb_files`; the options of a verb are in its own file."""

from __future__ import annotations

import argparse
import importlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from bitfront.search.urls import redacted
from bitfront.terminal.tables import width
from bitfront.trainables.errors import UserError, bounded, did_you_mean
from bitfront.verb_files import Verb, find_verbs, group_titles

DESCRIPTION = "Find the best binary neural network for a budget."
HELP_COLUMN = 14


class Parser(argparse.ArgumentParser):
    """argparse with errors as a `UserError`: one line, the nearest word, exit code 2."""

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace("argument ", "")
        raise UserError(bounded(redacted(message)), f"{self.prog} --help tells more")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "verb" if action.dest == "verb" else argparse._get_action_name(action)
            word = str(value)[:60]
            hint = did_you_mean(word, action.choices)
            raise argparse.ArgumentError(None, f"unknown {what} '{word}', {hint}")


class CommandParser(Parser):
    """The parser of `bitfront` itself: it knows every verb by name, and loads the file of a verb
    when the command line names it."""

    def __init__(self, epilog: str) -> None:
        super().__init__(prog="bitfront", description=DESCRIPTION, epilog=epilog)
        self.add_argument("--version", action="store_true", help="print the version and exit")
        self.verbs: Mapping[str, Verb] = find_verbs()
        self._loaded: set[str] = set()
        self._added = self.add_subparsers(
            metavar="VERB", dest="verb", parser_class=Parser, prog=self.prog
        )
        for verb in self.verbs.values():
            self._added.add_parser(verb.name, description=verb.summary)

    def verb_parser(self, name: str) -> argparse.ArgumentParser:
        """The parser of one verb with its options; the first call imports the verb's file."""
        parser: argparse.ArgumentParser = self._added.choices[name]
        if name not in self._loaded:
            self._loaded.add(name)
            parser.add_argument(
                "--home", metavar="DIR", help="where searches live (BITFRONT_HOME, ./bitfront-runs)"
            )
            importlib.import_module(self.verbs[name].module).options(parser)
        return parser

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse like argparse, after adding the options of the verb that `args` name."""
        words = list(args or ())
        named = next((word for word in words if not word.startswith("-")), None)
        if named is not None and named in self.verbs:
            self.verb_parser(named)
        return super().parse_known_args(words, namespace)

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The parsed arguments; the error for an unknown option names the nearest option of the
        verb."""
        args, unknown = self.parse_known_args(words)
        if unknown and args.verb:
            unknown = self._taken(args, unknown)
        if unknown:
            self._refuse(unknown[0][:60], args.verb)
        return args

    def _taken(self, args: argparse.Namespace, unknown: list[str]) -> list[str]:
        """Give words behind an option to the argument of the verb that takes any number of them,
        which argparse does not; returns what is left."""
        many = [a for a in self.verb_parser(args.verb)._actions if a.nargs == "*"]
        if not many or any(word.startswith("-") for word in unknown):
            return unknown
        setattr(args, many[0].dest, [*(getattr(args, many[0].dest) or ()), *unknown])
        return []

    def _refuse(self, word: str, verb: str | None) -> NoReturn:
        sub = self.verb_parser(verb) if verb else self
        if word.startswith("-"):
            options = [
                o for a in sub._actions if a.help != argparse.SUPPRESS for o in a.option_strings
            ]
            sub.error(f"unknown option '{word}', {did_you_mean(word.partition('=')[0], options)}")
        sub.error(f"'{word}' is one word too many")

    def format_help(self) -> str:
        lines = ["usage: bitfront VERB ...   (bitfront VERB --help: its options)", ""]
        lines += [DESCRIPTION, ""]
        for group, title in group_titles().items():
            lines.append(f"{title}:")
            for verb in self.verbs.values():
                if verb.group == group:
                    lines += _entry(verb.name, verb.help)
            lines.append("")
        lines.append("options:")
        lines += _entry("-h, --help", "show this help and exit")
        lines += _entry("--version", "print the version and exit")
        return "\n".join([*lines, "", str(self.epilog)])


def _entry(name: str, text: str) -> list[str]:
    """A name and what it is for, wrapped at the terminal's width."""
    first, indent = f"  {name:{HELP_COLUMN - 2}}", " " * HELP_COLUMN
    return textwrap.wrap(text, width() - 2, initial_indent=first, subsequent_indent=indent)
