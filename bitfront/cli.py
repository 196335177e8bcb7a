"""The command line: one parser, one function a verb. Nothing heavy is imported until a verb that
needs it runs, so that help answers at once."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

from bitfront.search.caches import settle
from bitfront.search.cluster.head import INTERRUPTED, LOST, leave_without_ray, lost
from bitfront.search.garbage import ending_soon
from bitfront.search.session.interrupts import asked_to_end, ending_gently
from bitfront.search.urls import redacted
from bitfront.trainables.errors import UserError, bounded, did_you_mean

TOUR = """\
a first tour:
  bitfront run                             the quickstart, about a minute
  bitfront front quickstart --plot         the front, a table and a picture
  bitfront dashboard                       the same in the browser
  bitfront ui                              all runs in MLflow
  bitfront export quickstart --budget 40%  a point of the front -> recipe.yaml
  bitfront train recipe.yaml               final training, packed checkpoint
"""

# Verbs that run on the head of a cluster when they are given its address.
READ_THERE = ("status", "stop", "front")
# Verbs that read a ledger and answer.
ANSWERING = ("status", "front")
# Verbs with a driver that stays where it was started, or with Ray's client on the head.
STAYING = ("run", "resume", "extend")
# Verbs whose options say where a new search goes, or what is to be checked.
STARTING = ("run", "submit", "doctor")
# Of a disk that is full, or that takes nothing any more.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Parser(argparse.ArgumentParser):
    """argparse, with our kind of message: one line, the nearest word, exit code 2."""

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace("argument ", "")
        raise UserError(bounded(redacted(message)), f"{self.prog} --help tells more")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "verb" if action.dest == "verb" else argparse._get_action_name(action)
            word = str(value)[:60]
            hint = did_you_mean(word, action.choices)
            raise argparse.ArgumentError(None, f"unknown {what} '{word}', {hint}")


def positive(text: str) -> int:
    """A whole number of at least 1, as counts of anything are."""
    return _whole(text, 1)


def port(text: str) -> int:
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


def parse(parser: Parser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; an option nobody knows gets the nearest one of its verb."""
    args, unknown = parser.parse_known_args(argv)
    if not unknown:
        return args
    word = unknown[0][:60]
    sub = _verbs(parser).get(args.verb, parser)
    if word.startswith("-"):
        options = [o for a in sub._actions if a.help != argparse.SUPPRESS for o in a.option_strings]
        sub.error(f"unknown option '{word}', {did_you_mean(word.partition('=')[0], options)}")
    sub.error(f"'{word}' is one word too many")


def _verbs(parser: Parser) -> dict[str, Parser]:
    found = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)


def no_browser(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--no-browser", action="store_true", help="do not open a browser")
    # What one of the verbs called it in version 0.1.
    sub.add_argument("--no-open", dest="no_browser", action="store_true", help=argparse.SUPPRESS)


def build_parser() -> Parser:
    parser = Parser(
        prog="bitfront",
        description="Find the best binary neural network for a budget.",
        epilog=TOUR,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb")

    def verb(name: str, module: str, text: str, json: bool = True) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(handler=(module, name))
        sub.add_argument(
            "--home", metavar="DIR", help="where searches live (BITFRONT_HOME, ./bitfront-runs)"
        )
        if json:
            sub.add_argument("--json", action="store_true", help="machine-readable output")
        return sub

    def yaml_arguments(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "search", nargs="?", default="quickstart", help="a YAML file or a ready-made search"
        )
        sub.add_argument(
            "--set",
            action="append",
            metavar="KEY=VALUE",
            help="override a key of the YAML, e.g. --set task.epochs=3 (repeatable)",
        )
        sub.add_argument("--name", help="name of the search (default: the YAML's)")
        sub.add_argument("--trials", type=positive, help="short for --set search.trials=N")
        sub.add_argument("--data-dir", metavar="DIR", help="where datasets are (BITFRONT_DATA)")

    def at_head(sub: argparse.ArgumentParser, required: bool = False) -> None:
        sub.add_argument(
            "--address",
            required=required,
            metavar="URL",
            help="of a cluster's dashboard, http://HEAD:8265: a search that was submitted there",
        )

    def running_arguments(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--address", help="a Ray cluster: auto, HOST:PORT or ray://HOST:10001")
        sub.add_argument("--quiet", action="store_true", help="print errors only")

    run = verb("run", "bitfront.verbs.searches", "start a search, or continue it when it exists")
    yaml_arguments(run)
    running_arguments(run)
    run.add_argument("--ledger", metavar="URL", help="SQLAlchemy URL (BITFRONT_LEDGER)")
    run.add_argument("--warm-start", metavar="NAME", help="begin with the front of another search")
    run.add_argument("--dry-run", action="store_true", help="the same as preview")

    submit = verb(
        "submit", "bitfront.verbs.remote", "start a search on a cluster and leave it there"
    )
    yaml_arguments(submit)
    at_head(submit, required=True)
    submit.add_argument("--ledger", metavar="URL", help="SQLAlchemy URL, reachable from the head")
    submit.add_argument(
        "--warm-start", metavar="NAME", help="begin with the front of another search on the head"
    )
    submit.add_argument(
        "--installed", action="store_true", help="run what the cluster has, do not send this code"
    )

    resume = verb("resume", "bitfront.verbs.searches", "continue an interrupted search", json=False)
    resume.add_argument("search", help="its name")
    running_arguments(resume)

    extend = verb(
        "extend", "bitfront.verbs.searches", "give a search more trials and run them", json=False
    )
    extend.add_argument("search", help="its name")
    extend.add_argument("--trials", required=True, metavar="+N", help="+N more, or a new total")
    running_arguments(extend)

    for name, text in (
        ("validate", "check a search YAML; nothing is started"),
        ("preview", "size of the space, costs, time of one trial, ETA; nothing is started"),
    ):
        sub = verb(name, "bitfront.verbs.searches", text)
        yaml_arguments(sub)
        if name == "preview":
            sub.add_argument(
                "--rehearse",
                action="store_true",
                help="play the whole search with made-up accuracies, in seconds and without "
                "training or data: how many trials will run, what is exhausted, which rows of a "
                "paper stay unanswered",
            )

    status = verb("status", "bitfront.verbs.searches", "how searches are doing")
    status.add_argument("searches", nargs="*", metavar="search", help="names (default: all)")
    at_head(status)

    stop = verb(
        "stop", "bitfront.verbs.searches", "end the driver of a running search; resume continues it"
    )
    stop.add_argument("search", help="its name")
    at_head(stop)

    logs = verb("logs", "bitfront.verbs.remote", "what a submitted search printed", json=False)
    logs.add_argument("search", help="its name")
    logs.add_argument("-f", "--follow", action="store_true", help="until it ends")
    at_head(logs, required=True)

    front = verb("front", "bitfront.verbs.searches", "the front of a search")
    front.add_argument("search", help="its name")
    front.add_argument("--plot", action="store_true", help="with a scatter of all trials")
    front.add_argument("--wide", action="store_true", help="whole plans and all columns")
    front.add_argument("--csv", action="store_true", help="all complete trials as CSV")
    at_head(front)

    compare = verb(
        "compare",
        "bitfront.verbs.searches",
        "two searches side by side, or one beside the paper's rows",
    )
    compare.add_argument("a", help="name of a search")
    compare.add_argument("b", nargs="?", help="name of another one")
    compare.add_argument("--paper", action="store_true", help="the rows the search's YAML carries")

    export = verb("export", "bitfront.verbs.searches", "points of a front as recipes", json=False)
    export.add_argument("search", help="its name")
    # argparse would put all ways to choose a point on one line.
    export.usage = "bitfront export SEARCH --budget 40%% [--epochs N] [--seeds N] [-o PATH]"
    which = export.add_mutually_exclusive_group()
    which.add_argument(
        "--budget",
        help="the best point within: 40%% of the flops of the search's dearest network in full "
        "precision (as flops %% in `bitfront front`), or a count of the cost that is optimized",
    )
    which.add_argument(
        "--min-accuracy",
        "--min-quality",
        metavar="ACC",
        help="the cheapest point with: 0.97 or 97%%",
    )
    which.add_argument("--knee", action="store_true", help="where the front bends most")
    which.add_argument(
        "--trial", metavar="ID", help="this trial, by its id (5b1ddccb), the start of it, or t12"
    )
    which.add_argument("--all", action="store_true", help="every point of the front")
    export.add_argument(
        "--epochs", type=positive, help="epochs of final training (default: as searched)"
    )
    export.add_argument(
        "--seeds", type=positive, default=3, help="seeds of final training (default 3)"
    )
    export.add_argument("-o", "--output", metavar="PATH", help="default recipe.yaml, or recipes/")
    export.add_argument("--force", action="store_true", help="replace a file of other content")

    train = verb("train", "bitfront.verbs.searches", "final training from a recipe")
    train.add_argument("recipe")
    train.add_argument("--epochs", type=positive, help="instead of the recipe's")
    train.add_argument(
        "--seeds", type=positive, metavar="N", help="seeds 0 to N-1, not the recipe's"
    )
    train.add_argument("--half", action="store_true", help="store what is not binary in float16")
    train.add_argument("--threads", type=positive, help="CPU threads (default: torch's choice)")
    train.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="share every batch among N workers on Ray, a GPU each where there are any",
    )
    train.add_argument("--address", help="the Ray cluster of --workers: auto or HOST:PORT")
    train.add_argument("--data-dir", metavar="DIR", help="where datasets are (BITFRONT_DATA)")
    train.add_argument("--quiet", action="store_true", help="print the result only")
    train.add_argument(
        "-o", "--output", metavar="DIR", help="default: RECIPE-trained/, or a folder beside it"
    )

    replay = verb("replay", "bitfront.verbs.searches", "train a finished trial again and compare")
    replay.add_argument(
        "trial", help="its id (5b1ddccb) as tables, pictures and MLflow show it, or SEARCH/ID"
    )
    replay.add_argument("--data-dir", metavar="DIR", help="where datasets are (BITFRONT_DATA)")

    ui = verb("ui", "bitfront.verbs.searches", "the MLflow UI, opened on a search", json=False)
    ui.add_argument("search", nargs="?", help="its name (default: the newest)")
    ui.add_argument("--host", default="127.0.0.1", help="address to listen on")
    ui.add_argument("--port", type=port, default=5000, help="0: any free one")
    no_browser(ui)

    dashboard = verb(
        "dashboard",
        "bitfront.verbs.searches",
        "searches in the browser, while they run",
        json=False,
    )
    dashboard.add_argument("search", nargs="?", help="its name (default: the newest)")
    dashboard.add_argument("--host", default="127.0.0.1", help="address to listen on")
    dashboard.add_argument("--port", type=port, default=8050, help="0: any free one")
    dashboard.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="answer by this name too, for example of a proxy (repeatable)",
    )
    no_browser(dashboard)
    dashboard.add_argument(
        "--optuna", action="store_true", help="the ledger in optuna-dashboard instead"
    )

    for name, text in (
        ("methods", "the binarization methods"),
        ("selectors", "the algorithms that make a plan for a budget"),
        ("models", "the networks"),
        ("datasets", "the datasets, and which of them are here"),
    ):
        sub = verb(name, "bitfront.verbs.catalog", text)
        sub.add_argument("pattern", nargs="?", default="*", help="a wildcard, e.g. 'bnn*'")
        if name == "datasets":
            sub.add_argument("--data-dir", metavar="DIR", help="where datasets are (BITFRONT_DATA)")

    cost = verb("cost", "bitfront.verbs.catalog", "what a planned network costs, layer by layer")
    cost.add_argument("model")
    cost.add_argument(
        "--plan", default="F", help="letters, one letter for all, front:7, mixbin-grad@40%%"
    )
    cost.add_argument("--dataset", help="for shape and classes, and for a selector of --plan")
    cost.add_argument("--data-dir", metavar="DIR", help="where datasets are (BITFRONT_DATA)")
    cost.add_argument(
        "--epochs",
        type=positive,
        default=10,
        help="of the network a selector of --plan trains first",
    )
    cost.add_argument("--shape", help="input shape, e.g. 3x32x32 (the default)")
    cost.add_argument("--classes", type=positive, help="default 100")
    cost.add_argument("--set", action="append", metavar="KEY=VALUE", help="a model parameter")
    cost.add_argument("--scale", choices=("none", "layer", "channel"), default="none")
    cost.add_argument("--binarize", choices=("body", "all"), default="body")
    cost.add_argument("--prune", type=float, metavar="R", help="pruning rate of the planned layers")
    cost.add_argument("--exponent", type=float, default=1.0, metavar="P", help="p of --prune")

    mask = verb("mask", "bitfront.verbs.catalog", "a picture of what a pruned layer keeps")
    mask.add_argument("checkpoint", help="a packed checkpoint of `bitfront train`")
    mask.add_argument("--layer", help="its name (default: list the layers and what they keep)")
    mask.add_argument("-o", "--output", metavar="PNG", help="default: LAYER.png")

    report = verb(
        "report", "bitfront.verbs.pictures", "a page to send around: the search in pictures"
    )
    report.add_argument("searches", nargs="+", metavar="search", help="its name; two are compared")
    report.add_argument("-o", "--output", metavar="HTML", help="default: report.html in its folder")

    figure = verb("figure", "bitfront.verbs.pictures", "one figure for a paper", json=False)
    figure.add_argument("search", help="its name; of masks also a packed checkpoint")
    figure.add_argument(
        "--kind", default="front", help="front (default), layers, hypervolume, masks, importance"
    )
    figure.add_argument("--layer", help="of masks: this one, weight by weight")
    figure.add_argument("--title", help="instead of the search's name; '' for none")
    figure.add_argument("-o", "--output", metavar="FILE", help=".pdf, .svg or .png; KIND.pdf")

    # What a folder of somebody else names is not reached before the user names it too.
    reading = ("status", "front", "compare", "export", "replay", "report", "figure", "dashboard")
    for kind, names in (
        ("ledger", ("resume", "extend", *reading)),
        ("tracking", ("resume", "extend", "train", "ui")),
        ("storage", ("resume", "extend")),
    ):
        for name in names:
            verbs.choices[name].add_argument(
                f"--{kind}",
                metavar="URL",
                help=f"a {kind} that only the folder of a search names: you trust it (said once)",
            )

    doctor = verb("doctor", "bitfront.verbs.catalog", "check this machine and installation")
    doctor.add_argument(
        "--address", help="every node of a Ray cluster too: auto, HOST:PORT, ray://..., http://..."
    )
    doctor.add_argument("--tracking", metavar="URL", help="an MLflow server that must answer")
    doctor.add_argument("--storage", metavar="PLACE", help="a path or URL all nodes must share")
    doctor.add_argument("--ledger", metavar="URL", help="a database that must answer")
    return parser


def _complain(error: UserError) -> None:
    """The message and its hint; on a terminal no word of them is split."""
    lines = f"error: {redacted(str(error))}".split("\n")
    if sys.stderr.isatty():
        from bitfront.terminal.tables import filled

        lines = [filled(line) for line in lines]
    print("\n".join(lines), file=sys.stderr)


def _name_servers(args: argparse.Namespace) -> None:
    from bitfront.search import named

    for kind in named.VARIABLES:
        url = getattr(args, kind, None)
        if url:
            named.give(kind, url)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0 done, 1 not what was hoped for, 2 a mistake in the input, 130 ctrl-C (or
    SIGTERM, or a terminal that closed)."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The name of a file may hold bytes that are no text: better shown somehow than not at all.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with ending_gently():
            code = _call(argv)
    except KeyboardInterrupt:  # when all was said already
        code = INTERRUPTED
    if lost() is not None:
        leave_without_ray(code)
    return code


def _call(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    try:
        args = parse(parser, argv)
    except UserError as error:
        _complain(error)
        return 2
    if args.version:
        from importlib import metadata

        print(f"bitfront {metadata.version('bitfront')}")
        return 0
    if args.verb is None:
        parser.print_help()
        return 0
    module, name = args.handler
    if name in READ_THERE and args.address is not None:
        module, name = "bitfront.verbs.remote", "there"
    if name == "doctor" and str(args.address).startswith("http"):
        module, name = "bitfront.verbs.remote", "there"
    if name in STAYING and str(args.address).startswith("ray://"):
        module, name = "bitfront.search.cluster.ray_client", "run_there"
    settle()
    try:
        if name not in STARTING:
            _name_servers(args)
        with ending_soon() if name in ANSWERING else nullcontext():
            code: int = getattr(importlib.import_module(module), name)(args)
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
        # A bug; but its traceback may quote an address.
        print(redacted(traceback.format_exc()), end="", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
