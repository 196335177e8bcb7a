"""What a planned network costs, layer by layer."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.search.ledger.folder import home
from bitfront.terminal import tables as terminal
from bitfront.terminal.costs import PlannedNetwork, cost_text
from bitfront.trainables import own_code
from bitfront.trainables.costs import bound, devices
from bitfront.trainables.methods import build_method
from bitfront.trainables.settings import TREATED_INPUTS
from bitfront.verbs import model_options
from bitfront.verbs import options as shared
from bitfront.verbs.plan_option import parse_plan, selected_here


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument("model", help="a name, or a network of your own: my_net.py:MyNet")
    model_options.options(parser)
    parser.add_argument(
        "--plan", default="F", help="letters, one letter for all, first:7, mixbin-grad@40%%"
    )
    parser.add_argument(
        "--device",
        metavar="TABLE",
        help="a device table, a name or a file (bitfront bench): latency_ms per layer too",
    )
    parser.add_argument(
        "--epochs",
        type=shared.positive,
        default=10,
        help="of the network a selector of --plan trains first",
    )
    parser.add_argument("--scale", choices=("none", "layer", "channel"), default="none")
    parser.add_argument(
        "--prune", type=float, metavar="R", help="pruning rate of the planned layers"
    )
    parser.add_argument("--exponent", type=float, default=1.0, metavar="P", help="p of --prune")
    shared.trust(parser)


def action(args: Namespace) -> int:
    named, table = model_options.named_network(args)
    further = []
    if args.device is not None:
        devices.look_in(home(args.home))
        device = devices.named(args.device)
        device.times(table.identity)
        further = bound(device)
    plan = parse_plan(args.plan, table, selected_here(args, named.params))
    kept = None
    if args.prune is not None:
        method = build_method("edge-popup", {"rate": args.prune, "p": args.exponent})
        kept = method.kept(table.sizes(plan))
    network = PlannedNetwork(
        own_code.shown(named.model),
        named.params,
        named.shape,
        named.classes,
        table,
        plan,
        args.scale,
        TREATED_INPUTS.get(named.activations, 0),
        kept,
        further,
    )
    if args.json:
        terminal.show_json(network.as_json())
    else:
        terminal.show(cost_text(network))
    return 0
