"""The device table of a search whose objectives or limits were measured on a machine: which one it
is, and that it has every network of the space. What is in it: `trainables.costs.devices`."""

from __future__ import annotations

from dataclasses import replace

from bitfront.search.config.bounds import MOST_NETWORKS
from bitfront.search.config.errors import KeyPath, KeyProblem, Problems
from bitfront.search.config.schema import DeviceSpec, SearchConfig
from bitfront.spaces.space import FixedPlan, FreePlan, PlanSpace, Space
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.costs import devices, measured
from bitfront.trainables.costs.devices import SAME, DeviceTable
from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.machine import cpu_name
from bitfront.trainables.task import Task

# How messages call a search that was described in Python.
IN_PYTHON = "bf.Search"


def with_device(
    config: SearchConfig, space: Space, file: str, problems: Problems
) -> tuple[SearchConfig, Space]:
    """The search with its device table, cut to the networks it has; as it is where it needs none.
    `file`: its YAML, for the command that measures its networks."""
    path = _where(config)
    if path is None:
        return config, space
    try:
        identities = [task_cost_table(task).identity for task in networks(space)]
        table = _found(config, identities)
        _check(table, identities, levels(space.plan), file)
    except KeyProblem as problem:
        problems.append(problem)
        return config, space
    except UserError as error:
        problems.add(path, str(error))
        return config, space
    if table is None:
        problems.add(path, f"no device table has its networks: make one with {command(file)}")
        return config, space
    table = table.only(identities)
    given = config.device
    if given is not None and given.sha256 not in (None, table.digest):
        message = f"device table {table.name} has changed since: its hash is another one"
        problems.add(("device",), message)
        return config, space
    spec = DeviceSpec(table=table.name if given is None else given.table, sha256=table.digest)
    return config.model_copy(update={"device": spec}), replace(space, device=table)


def command(file: str) -> str:
    """What measures the networks of a search; one that was described in Python has no file."""
    return "search.bench()" if file == IN_PYTHON else f"bitfront bench {file}"


def networks(space: Space) -> list[Task]:
    """A task of every network of the space; a KeyProblem where there are too many to measure."""
    found = space.networks(MOST_NETWORKS)
    if found is None:
        key = next(name for name, d in space.overrides.items() if name.startswith("model."))
        raise KeyProblem(
            ("space", key),
            f"more than {MOST_NETWORKS} networks cannot be measured for a device table: give a "
            "list of values",
        )
    return found


def levels(plan: PlanSpace) -> str:
    """The levels that plans of the space have, F first."""
    if isinstance(plan, FixedPlan):
        given = plan.letters
    elif isinstance(plan, FreePlan):
        given = "".join(plan.levels)
    else:
        given = getattr(plan, "level", "") or plan.using.level  # type: ignore[union-attr]
    return "".join(dict.fromkeys("F" + given))


def _where(config: SearchConfig) -> KeyPath | None:
    """The key that asks for a device table; None where none does."""
    names = {cost.name for cost in measured()}
    for section in ("objectives", "limits"):
        asked = [name for name in getattr(config, section) if name in names]
        if asked:
            return (section, asked[0])
    return None if config.device is None else ("device",)


def _found(config: SearchConfig, identities: list[str]) -> DeviceTable | None:
    """The table that the search began with, the one that is named, or that of this machine."""
    begun, given = devices.kept(config.name), config.device
    if begun is not None and begun.has(identities) and _is_meant(begun, given):
        return begun
    if given is not None:
        return devices.named(given.table)
    return devices.of_machine(cpu_name(), identities)


def _is_meant(begun: DeviceTable, given: DeviceSpec | None) -> bool:
    return given is None or begun.name == given.table or begun.digest == given.sha256


def _check(table: DeviceTable | None, identities: list[str], letters: str, file: str) -> None:
    """Raise a UserError unless the table has these networks at these levels."""
    if table is None:
        return
    if not table.has(identities):
        raise UserError(
            f"device table {table.name} lacks networks of the space: measure them with "
            f"{command(file)}"
        )
    wanted = {SAME.get(letter, letter) for letter in letters}
    for identity in identities:
        times = table.times(identity)
        missing = sorted(wanted - set(times.levels)) if times.layers else []
        if missing:
            raise UserError(
                f"device table {table.name} has no times of level {', '.join(missing)} for "
                f"{times.model}: {command(file)}"
            )
