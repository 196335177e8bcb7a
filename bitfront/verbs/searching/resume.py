"""Continue an interrupted search.

`resumed` is what `extend` does too, once the search has its larger budget."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.search import kept_code
from bitfront.search.cluster.ray_client import is_client, run_there
from bitfront.search.cluster.remote.words import is_remote
from bitfront.search.config.load import load_text
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.space import named_methods
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.results import config_to_continue
from bitfront.terminal.next_commands import new_search
from bitfront.terminal.status_line import StatusLine
from bitfront.trainables.costs import devices
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import METHODS
from bitfront.trainables.own_code import is_reference, received, references_in
from bitfront.verbs import options as shared
from bitfront.verbs.on_head import send
from bitfront.verbs.opening import folder_of, status_line


def options(parser: ArgumentParser) -> None:
    shared.search_name(parser)
    shared.running(parser)
    shared.waiting(parser)
    shared.trusted(parser, "ledger", "tracking", "storage")
    shared.trust(parser)


def action(args: Namespace) -> int:
    if is_client(args.address):
        return run_there(args)
    if is_remote(args.address):
        return send(args, args.search)
    with status_line(args) as line:
        folder = folder_of(args, args.search)
        return resumed(config_to_continue(folder), folder, args.address, args.quiet, line)


def resumed(
    config: SearchConfig, folder: SearchFolder, address: str | None, quiet: bool, line: StatusLine
) -> int:
    """Run what is left of a stored search, after the same checks as for one read from a file, and
    return the exit code."""
    from bitfront.search.session.preparation import check_places, check_start  # torch
    from bitfront.verbs.launch import launch

    kept_code.look(folder.path)
    devices.look_in(folder.path.parent)
    for name in named_methods(config.space):
        if not is_reference(name) and name not in METHODS:
            raise UserError(
                f"method '{name}' of search '{config.name}' is no longer there",
                "put its file back into trainables/methods/; `bitfront front` shows what it found",
            )
    with received():  # the folder may have come from somebody else
        config, space = load_text(config.dump(), stored=True)
    check_places(config, folder)
    check_start(config, space, folder, address, line)
    for text in kept_code.edited(references_in(config.open_data()), new_search(config.name)):
        line.say(f"warning: {text}")
    return launch(config, space, folder, address, quiet, line=line)
