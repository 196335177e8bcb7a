"""Options that several verbs have, and the types of their values. What a single verb has is in its
own file."""

from __future__ import annotations

import argparse
import shlex
from argparse import ArgumentParser, Namespace, _MutuallyExclusiveGroup

from bitfront.search.ports import first_free
from bitfront.trainables.errors import UserError

QUICKSTART = "quickstart"


def positive(text: str) -> int:
    """A whole number of at least 1, as counts of anything are."""
    return _whole(text, 1)


def port(text: str) -> int:
    """The number of a port; 0 stands for any free one."""
    return _whole(text, 0, 65535)


def _whole(text: str, least: int, most: int | None = None) -> int:
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise argparse.ArgumentTypeError(f"give a whole number {wanted}, not {text[:40]!r}")
    return number


def json_output(parser: ArgumentParser | _MutuallyExclusiveGroup) -> None:
    parser.add_argument("--json", action="store_true", help="machine-readable output")


def search_name(parser: ArgumentParser) -> None:
    parser.add_argument("search", help="its name")


def pattern(parser: ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="?", default="*", help="a wildcard, e.g. 'bnn*'")


def data_dir(parser: ArgumentParser) -> None:
    parser.add_argument("--data-dir", metavar="DIR", help="where datasets are (BITFRONT_DATA)")


def search_yaml(parser: ArgumentParser) -> None:
    """Options for a search given as a file or by name, and for changes to it."""
    parser.add_argument(
        "search",
        nargs="?",
        default=QUICKSTART,
        help=f"a YAML file or a ready-made search (default: {QUICKSTART})",
    )
    parser.add_argument(
        "--set",
        action="append",
        metavar="KEY=VALUE",
        help="override a key of the YAML, e.g. --set task.epochs=3 (repeatable)",
    )
    parser.add_argument("--name", help="name of the search (default: the YAML's)")
    parser.add_argument("--trials", type=positive, help="short for --set search.trials=N")
    data_dir(parser)
    trust(parser)


def rows(parser: ArgumentParser) -> None:
    """The option of the rows of a paper that are run alone."""
    parser.add_argument(
        "--rows",
        action="append",
        metavar="LABEL",
        help="run only the rows of the paper with this label or pattern, then stop (repeatable)",
    )


def running(parser: ArgumentParser) -> None:
    """Options for where trials run, and whether anything is printed meanwhile."""
    parser.add_argument(
        "--address", help="a Ray cluster: auto, HOST:PORT, ray://HOST:10001 or http://HOST:8265"
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")


def waiting(parser: ArgumentParser) -> None:
    """The option not to wait for a driver on the head of a cluster."""
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="leave before the driver on the head has passed its checks",
    )


def head_address(parser: ArgumentParser, required: bool = False) -> None:
    parser.add_argument(
        "--address",
        required=required,
        metavar="URL",
        help="of a cluster's dashboard, http://HEAD:8265: a search that was submitted there",
    )


def served(parser: ArgumentParser, default_port: int) -> None:
    """Options for where a page is served, and whether a browser opens on it."""
    parser.add_argument("search", nargs="?", help="its name (default: the newest)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument(
        "--port", type=port, help=f"0: any free one (default: {default_port} or the next free one)"
    )
    parser.set_defaults(usual_port=default_port)
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    # Asked for by who knows the other verbs: `not_remote` says what there is instead.
    parser.add_argument("--address", help=argparse.SUPPRESS)
    # What one of the verbs called it in version 0.1.
    parser.add_argument("--no-open", dest="no_browser", action="store_true", help=argparse.SUPPRESS)


def not_remote(args: Namespace) -> None:
    """Raise UserError where a page is asked for at the head of a cluster."""
    if args.address is None:
        return
    port, word = args.usual_port, f" {shlex.quote(args.search)}" if args.search else ""
    raise UserError(
        f"bitfront {args.verb} shows searches of this machine, and those of {args.address} "
        "are on its head",
        f"a tunnel to the head: ray attach CLUSTER.yaml -p {port}, and there: bitfront "
        f"{args.verb}{word} --port {port} --no-browser; then it is at http://127.0.0.1:{port} here",
    )


def port_of(args: Namespace) -> int:
    """The port to listen on: the one that was given, or the usual one or the next that is free."""
    given: int | None = args.port
    return first_free(args.host, args.usual_port) if given is None else given


def trust(parser: ArgumentParser) -> None:
    """The option by which the user trusts code that only a file they were given names."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run code that only the file or search names, not you (said once)",
    )


def trusted(parser: ArgumentParser, *places: str) -> None:
    """Options by which the user trusts a server that only the stored folder of a search names; it
    is not contacted without them."""
    for place in places:
        parser.add_argument(
            f"--{place}",
            metavar="URL",
            help=f"a {place} that only the folder of a search names: you trust it (said once)",
        )
    parser.set_defaults(trusted=places)
