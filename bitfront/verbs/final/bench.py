"""How fast a network runs; of a model, a recipe or a search also the device table of `latency_ms`.

A packed network is measured against torch. Of the others all layers are, at all levels: with those
times the cost is counted before any training."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bitfront.search.config.checks.device import levels
from bitfront.search.config.load import load
from bitfront.search.config.source import read
from bitfront.search.ledger.folder import home
from bitfront.search.measuring import (
    Measuring,
    called,
    different_networks,
    measure_here,
    measure_on,
    table_of,
)
from bitfront.search.recipes.recipe import load_recipe
from bitfront.spaces.ready_made import search_file, searches
from bitfront.terminal import tables as terminal
from bitfront.terminal.costs import bench_text, device_text
from bitfront.trainables.costs.devices import DeviceTable, NetworkTimes
from bitfront.trainables.models import MODELS
from bitfront.trainables.runtime.machine import cpu_name
from bitfront.trainables.task import Task
from bitfront.verbs import model_options
from bitfront.verbs import options as shared

if TYPE_CHECKING:
    from bitfront.trainables.runtime.planned import Subject

PACKED_SECONDS, TABLE_SECONDS = 3, 20


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument(
        "what",
        metavar="WHAT",
        help="a packed network (seed0.safetensors), a model (cresnet20, my_net.py:MyNet), a recipe "
        "or a search (a YAML file, or a ready-made search)",
    )
    model_options.options(parser)
    parser.add_argument("--batch", type=shared.positive, default=1, help="examples per call (1)")
    parser.add_argument("--threads", type=shared.positive, default=1, help="threads per call (1)")
    parser.add_argument(
        "--seconds",
        type=shared.positive,
        help=f"how long to measure a network ({TABLE_SECONDS}; a packed one {PACKED_SECONDS}, and "
        "three times as long where it is so slow that less would be no measurement)",
    )
    parser.add_argument(
        "--levels", metavar="LETTERS", help="to measure (FWB; of a search those of its plans)"
    )
    parser.add_argument(
        "--checks",
        type=shared.positive,
        default=20,
        help="random plans measured whole, with which the sums over layers are compared (20)",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="TABLE",
        help="name or file of the device table (named after CPU, threads and batch)",
    )
    parser.add_argument(
        "--on",
        metavar="RESOURCE",
        help="measure on a node of a cluster that was started with this custom resource",
    )
    parser.add_argument("--address", help="that Ray cluster: auto, HOST:PORT (default: auto)")
    shared.trust(parser)


def action(args: Namespace) -> int:
    if _is_packed(args.what):
        return _bench_packed(args)
    subjects = list(_subjects(args))
    wanted = args.levels or subjects[0][2]
    if args.on is None:
        _table_of(args, cpu_name())  # a mistake is told before anything is measured
    cpu, found = _measured(args, subjects, wanted)
    table, path = _table_of(args, cpu)
    table = table.with_networks(found)
    table.write(path)
    if args.json:
        measured = table.only(found)
        terminal.show_json({"file": str(path), **measured.describe_json()})
    else:
        terminal.show(device_text(table.only(found), path, args.what))
    return 0


def _is_packed(what: str) -> bool:
    if Path(what).suffix == ".safetensors":  # one that is not there is said to be missing
        return True
    return Path(what).suffix not in (".yaml", ".yml", ".py") and Path(what).is_file()


def _bench_packed(args: Namespace) -> int:
    from bitfront.trainables import packed
    from bitfront.trainables.runtime.bench import bench

    seconds = args.seconds or PACKED_SECONDS
    network, spec, _ = packed.load(Path(args.what))
    if not args.json:
        terminal.show(f"{args.what}: measuring for {seconds} s ...")
    found = bench(network, spec, args.batch, args.threads, seconds)
    if args.json:
        terminal.show_json(found.describe())
    else:
        terminal.show(bench_text(found))
    return 0


def _subjects(args: Namespace) -> Iterator[tuple[str, Subject, str]]:
    """(name, network, levels) of all that is measured."""
    from bitfront.trainables.runtime.planned import MEASURED, Subject

    if args.what.endswith((".yaml", ".yml")) or _is_search(args.what):
        for task, letters in _tasks(args):
            yield called(task.model.name, task.model.params), Subject.of(task), letters
        return
    args.model = args.what
    named, _ = model_options.named_network(args)
    subject = Subject(
        named.model,
        named.params,
        named.shape,
        named.classes,
        named.scope,
        tuple(named.keep_full),
        named.activations,
        named.integers,
        named.axes,
    )
    yield called(named.model, named.params), subject, MEASURED


def _is_search(what: str) -> bool:
    """Whether this names a ready-made search, and no model."""
    return what in searches() and what not in MODELS.names()


def _tasks(args: Namespace) -> list[tuple[Task, str]]:
    """A task of every network of a recipe or a search, with the levels of its plans."""
    path = search_file(args.what)
    if _is_recipe(path):
        spec = load_recipe(path).spec
        return [(spec.task, "".join(dict.fromkeys("F" + spec.plan)))]
    changes = [*args.params, *(args.set or [])]
    changes += [f"task.data_dir={args.data_dir}"] if args.data_dir else []
    _, space = load(path, changes, timed=False)
    return [(task, levels(space.plan)) for task in different_networks(space, str(path))]


def _is_recipe(path: Path) -> bool:
    return "bitfront_recipe" in read(path).data


def _measured(
    args: Namespace, subjects: list[tuple[str, Subject, str]], wanted: str
) -> tuple[str, dict[str, NetworkTimes]]:
    """(CPU, times by identity of the network)."""
    work = Measuring(
        [(name, subject) for name, subject, _ in subjects],
        wanted,
        args.batch,
        args.threads,
        float(args.seconds or TABLE_SECONDS),
        args.checks,
    )
    said = (lambda _text: None) if args.json else terminal.show
    if args.on is not None:
        return measure_on(work, args.on, args.address or "auto", said)
    return measure_here(work, said)


def _table_of(args: Namespace, cpu: str) -> tuple[DeviceTable, Path]:
    return table_of(cpu, args.threads, args.batch, home(args.home), args.out)
