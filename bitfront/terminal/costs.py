"""The costs of a planned network as text: a table per layer and one of totals. They are computed in
`bitfront.trainables.cost`. Beside them, how fast a network runs: `bitfront.trainables.runtime`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitfront.terminal.tables import filled, table
from bitfront.trainables.cost import CostTable
from bitfront.trainables.costs import summed

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

    @property
    def rows(self) -> list[Any]:
        return list(self.table.rows(self.plan, self.scale, self.stored, self.kept))

    @property
    def has_roles(self) -> bool:
        """Whether it is known what every layer is for, as in networks of the user's own."""
        return any(layer.role for layer in self.table.layers)

    @property
    def totals(self) -> dict[str, float]:
        return self.table.totals(self.plan, self.scale, self.stored, self.kept)

    @property
    def full(self) -> dict[str, float]:
        """The totals in full precision."""
        return self.table.totals("F" * len(self.plan), self.scale)

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
    headers = ["layer", *roles, "level", *pruned, "MACs", "flops", "% of FP", "bytes"]
    totals_rows = [
        [c, f"{totals[c]:,.0f}", f"{full[c]:,.0f}", f"{100 * totals[c] / full[c]:.2f}"]
        for c in (cost.name for cost in summed())
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
        ]
        for row in network.rows
    ]


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
