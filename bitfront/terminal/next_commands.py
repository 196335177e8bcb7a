"""The commands that the terminal suggests next: after a search, an export or a submission, or where
something is missing. Pages and MLflow have suggestions of their own (`search.results.reader`,
`search.tracking.notes`)."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from bitfront.search import submission
from bitfront.terminal.tables import filled, width

if TYPE_CHECKING:
    from bitfront.search.recipes.final_training import FinalResult
    from bitfront.search.results.results import Results

TOUR = """\
a first tour:
  bitfront run                             the quickstart, one to two minutes
  bitfront front quickstart --plot         the front, a table and a picture
  bitfront dashboard                       the same in the browser
  bitfront ui                              all runs in MLflow
  bitfront export quickstart --budget 40%  a point of the front -> recipe.yaml
  bitfront train recipe.yaml               final training, packed checkpoint
"""


def after_search(results: Results) -> str:
    """What may be done with a search that ended or was interrupted; from outside, for somebody who
    reads the log of a search on a cluster."""
    name, budget = results.config.name, _a_budget(results)
    submitted = submission.here() is not None
    back = submission.back() if submitted else ""
    look = [
        (f"bitfront ui {name}", "all runs in MLflow"),
        (f"bitfront dashboard {name}", "look around in a browser"),
    ]
    point = [
        (f"bitfront export {name} --budget {budget}{back}", "a point as recipe.yaml"),
        (f"{after_export('recipe.yaml')}", "final training"),
    ]
    commands = [
        *([(f"bitfront front {name}{back}", "its front")] if submitted else look),
        *(point if results.front else []),
    ]
    if not results.front and results.failures():
        commands.insert(0, (all_failures(name), "why trials failed"))
    if results.state_without_driver == "interrupted":
        commands.insert(0, (resume(name), "continue where it stopped"))
    elif not results.space_exhausted:
        commands.append((f"bitfront extend {name} --trials +20{back}", "more trials"))
    return _listed(commands)


def _a_budget(results: Results) -> str:
    """A budget that a point of the front satisfies, in the cost that is optimized."""
    costs = sorted(entry.costs[results.cost_name] for entry in results.front)
    if results.in_percent or not costs:
        return "40%"
    middle = costs[len(costs) // 2]
    if middle >= 100 or middle <= 0:
        return f"{results.cost_name}={math.ceil(middle)}"
    step = 10.0 ** (math.floor(math.log10(middle)) - 1)  # two digits, rounded up
    return f"{results.cost_name}={math.ceil(middle / step) * step:.3g}"


def after_export(recipe: str | os.PathLike[str]) -> str:
    """The command that trains a recipe."""
    return f"bitfront train {os.fspath(recipe)}"


def after_training(result: FinalResult) -> str:
    """How a packed checkpoint is used in Python, and elsewhere."""
    file = result.seeds[0].checkpoint
    lines = [
        "import bitfront as bf",
        f'net = bf.load("{file}")',
        "logits = net(net.preprocess(image))",
    ]
    python = "\n".join(["Next, in Python:", *(f"  {line}" for line in lines)])
    return f"{python}\nor elsewhere:\n  bitfront deploy {file} --onnx"


def after_submit(name: str, address: str) -> str:
    """How a search on a cluster is looked at and stopped from here."""
    verbs = {
        "status": "how it is doing",
        "logs": "what it printed",
        "front": "its front",
        "stop": "end it",
        "resume": "continue it",
    }
    return _listed([(f"bitfront {v} {name} --address {address}", w) for v, w in verbs.items()])


def for_masks(name: str) -> str:
    """How a search without a final training gets one."""
    return (
        f"bitfront export {name} --knee; {after_export('recipe.yaml')}; "
        "or give a packed checkpoint in place of the name"
    )


def resume(name: str) -> str:
    """The command that continues a search."""
    return f"bitfront resume {name}{submission.back()}"


def new_search(name: str) -> str:
    """How a search is begun anew with code that has changed."""
    return f"start a search of another name: bitfront run YAML --name {name}-2"


def all_failures(name: str) -> str:
    """The command that shows every failed trial with its traceback."""
    return f"bitfront status {name} --failures{submission.back()}"


def _listed(commands: list[tuple[str, str]]) -> str:
    longest = max(len(command) for command, _ in commands)
    lines = [f"  {command.ljust(longest)}   {what}" for command, what in commands]
    if max(map(len, lines)) > width():  # a command must fit to be copied: without explanations
        lines = [filled(f"  {command}") for command, _ in commands]
    return "\n".join(["Next:", *lines])
