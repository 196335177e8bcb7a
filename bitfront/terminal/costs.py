"""The costs of a planned network as text: a table per layer and one of totals. They are computed in
`bitfront.trainables.cost`. Beside them, how fast a network runs: `bitfront.trainables.runtime`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.terminal.tables import filled, table
from bitfront.trainables.cost import CostTable
from bitfront.trainables.costs import Cost, summed
from bitfront.trainables.costs.devices import FOLDER, Agreement, DeviceTable

if TYPE_CHECKING:
    from bitfront.trainables.runtime.bench import Bench


@dataclass(frozen=True)
class PlannedNetwork:
    """A model with a plan, and how its cost is counted."""

    model: str
    params: dict[str, Any]
    shape: tuple[int, ...]
    classes: int
    table: CostTable
    plan: str
    scale: str
    stored: int
    """numbers per input channel that layers with binary inputs store: norms, shifts"""
    kept: Mapping[str, int] | None
    """weights that pruning keeps, by layer; None where nothing is pruned"""
    further: Sequence[Cost] = ()
    """costs of a device table"""

    @property
    def rows(self) -> list[Any]:
        given = (self.plan, self.scale, self.stored, self.kept, self.further)
        return list(self.table.rows(*given))

    @property
    def has_roles(self) -> bool:
        """Whether it is known what every layer is for, as in networks of the user's own."""
        return any(layer.role for layer in self.table.layers)

    @property
    def totals(self) -> dict[str, float]:
        given = (self.plan, self.scale, self.stored, self.kept)
        return self.table.totals(*given) | self._further(*given)

    @property
    def full(self) -> dict[str, float]:
        """The totals in full precision."""
        given = ("F" * len(self.plan), self.scale)
        return self.table.totals(*given) | self._further(*given)

    def _further(self, *given: Any) -> dict[str, float]:
        return {cost.name: self.table.total(cost, *given) for cost in self.further}

    @property
    def counted(self) -> list[Cost]:
        """All costs that are sums over the layers."""
        return [*summed(), *self.further]

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "params": self.params,
            "shape": list(self.shape),
            "classes": self.classes,
            "plan": self.plan,
            "scale": self.scale,
            "layers": [row.describe() for row in self.rows],
            "totals": {**self.totals, "parameters": self.table.parameters},
            "training": vars(self.table.training_cost(self.plan, self.kept)),
            "full_precision": self.full,
        }


def cost_text(network: PlannedNetwork) -> str:
    """The table of layers, the table of totals, and the conventions by which costs are counted."""
    totals, full = network.totals, network.full
    shown = "x".join(map(str, network.shape))
    pruned = [] if network.kept is None else ["weights kept"]
    roles = ["role"] if network.has_roles else []
    more = [cost.name for cost in network.further]
    headers = ["layer", *roles, "level", *pruned, "MACs", "flops", "% of FP", "bytes", *more]
    totals_rows = [
        [c, _number(totals[c]), _number(full[c]), f"{100 * totals[c] / full[c]:.2f}"]
        for c in (cost.name for cost in network.counted)
    ]
    return "\n".join(
        [
            f"{network.model} at {shown}, {_classes(network)}plan {network.plan}\n",
            table(headers, _layer_rows(network), flexible=0),
            "",
            table(["total", "this plan", "full precision", "%"], totals_rows),
            *_pruning(network),
            "",
            *(filled(f"{cost.name}: {cost.doc}") for cost in summed()),
            *(filled(f"{cost.name}: {cost.label}; {cost.doc}") for cost in network.further),
        ]
    )


def _layer_rows(network: PlannedNetwork) -> list[list[str]]:
    full = network.full["flops"]
    return [
        [
            row.name,
            *([row.role or "fixed"] if network.has_roles else []),
            row.level if row.planned else f"{row.level} fixed",
            *([] if network.kept is None else [f"{row.kept:,}"]),
            f"{row.macs:,}",
            f"{row.costs['flops']:,.0f}",
            f"{100 * row.costs['flops'] / full:.4f}",
            f"{row.costs['bytes']:,}",
            *(f"{row.costs[cost.name]:.4f}" for cost in network.further),
        ]
        for row in network.rows
    ]


def _number(value: float) -> str:
    """A count, or milliseconds."""
    return f"{value:,.0f}" if float(value).is_integer() or value >= 1000 else f"{value:.4g}"


def _classes(network: PlannedNetwork) -> str:
    return f"{network.classes} classes, " if network.classes else ""


def _pruning(network: PlannedNetwork) -> list[str]:
    """What pruning keeps and what training costs then; nothing where nothing is pruned."""
    if network.kept is None:
        return []
    rows = network.rows
    left, weights = sum(row.kept for row in rows), sum(row.weights for row in rows)
    spent = network.table.training_cost(network.plan, network.kept)
    return [
        "",
        filled(
            f"{left:,} of {weights:,} weights kept; operations per image as the paper of robust "
            "pruning counts them (its Table 6):"
        ),
        filled(
            f"forward {spent.training_forward:,.0f} in training and "
            f"{spent.evaluation_forward:,.0f} in evaluation, backward {spent.backward:,.0f}"
        ),
    ]


def bench_text(bench: Bench) -> str:
    """Measured speeds: a row per runtime, and which layers no kernel computes."""
    rows = [
        [name, f"{value:.3g}", f"{bench.full / value:.2f}"]
        for name, value in bench.milliseconds.items()
    ]
    examples = "1 example" if bench.batch == 1 else f"{bench.batch} examples"
    threads = "1 thread" if bench.threads == 1 else f"{bench.threads} threads"
    head = f"plan {bench.plan}, {examples} per call, {threads} on {bench.cpu}"
    notes = [
        str(bench.runtime),
        *(f"{name}: {reason}" for name, reason in bench.runtime.others.items()),
    ]
    made = table(["runtime", "ms", "times full precision"], rows)
    return "\n".join([filled(head), made, *map(filled, notes)])


def device_text(device: DeviceTable, path: Path, what: str) -> str:
    """Networks of a device table that were just measured: uniform plans, how far sums over layers
    are from other plans, and what to do with the table."""
    lines = [filled(device.describe())]
    for times in device.networks.values():
        count = len(times.layers)
        full = times.whole["F" * count]
        rows = []
        for level in times.levels:
            found = times.whole.get(level * count)
            if found is not None:
                summed_up = times.rest + sum(layer[level] for layer in times.layers.values())
                rows.append([level, f"{found:.4g}", f"{full / found:.2f}", f"{summed_up:.4g}"])
        head = f"{times.model}: {count} layers, the rest takes {times.rest:.3g} ms"
        lines += ["", filled(head)]
        lines.append(table(["all layers", "ms", "times F", "sum over layers"], rows))
        lines.append(filled(_agreement(times.agreement)))
    name = device.name if path.parent.name == FOLDER else str(path)
    lines += ["", f"wrote {path}"]
    if what.endswith((".yaml", ".yml")):
        lines.append(f"objectives: {{latency_ms: min}} in {what} is of this machine now")
    else:
        lines.append(f"layer by layer: bitfront cost {what} --plan B --device {name}")
    return "\n".join(lines)


def _agreement(found: Agreement) -> str:
    """How far sums over layers are from plans that were measured whole."""
    rank = "" if found.rank is None else f", rank correlation {found.rank:.3f}"
    return (
        f"{found.plans} other random plans, measured whole: sums over layers are off by "
        f"{found.error_pct:.1f} % on average{rank}"
    )
