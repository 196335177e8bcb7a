"""How fast a network runs here: on packed bits, in torch, and the same one in full precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bitfront.trainables.data import DATASETS
from bitfront.trainables.models import build_model
from bitfront.trainables.runtime.machine import KERNELS, cpu_name
from bitfront.trainables.runtime.network import Fast, an_example, fast
from bitfront.trainables.runtime.threads import using
from bitfront.trainables.runtime.timing import milliseconds
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.training.network import laid_out, layout_of

PACKED, TORCH, FULL = "packed bits", "torch, same network", "torch, full precision"


@dataclass(frozen=True)
class Bench:
    """What was measured: milliseconds per batch, by runtime."""

    plan: str
    milliseconds: dict[str, float]
    runtime: Fast
    batch: int
    threads: int

    @property
    def cpu(self) -> str:
        """The machine it was measured on."""
        return cpu_name()

    @property
    def full(self) -> float:
        """The time of the network in full precision."""
        return self.milliseconds[FULL]

    def describe(self) -> dict[str, Any]:
        """The machine-readable form."""
        return {
            "plan": self.plan,
            "batch": self.batch,
            "threads": self.threads,
            "cpu": self.cpu,
            "kernel_version": KERNELS,
            "milliseconds": self.milliseconds,
            "runtime": str(self.runtime),
            "kernels": self.runtime.kernels,
            "others": self.runtime.others,
        }


def bench(
    network: nn.Module, spec: TrialSpec, batch: int = 1, threads: int = 1, seconds: float = 3.0
) -> Bench:
    """Measure a loaded network (`packed.load`) on inputs of the shape of its data."""
    info = DATASETS.get(spec.task.dataset)
    model = spec.task.model
    full = build_model(model.name, model.params, info.shape, info.classes).eval()
    full = laid_out(full, layout_of(model.name, full))
    with using(threads), torch.no_grad():
        made = fast(network, an_example(info))
        x = an_example(info, batch)
        calls = {TORCH: lambda: network(x), FULL: lambda: full(x)}
        if made.kernels:
            calls = {PACKED: lambda: made.network(x), **calls}
        return Bench(spec.plan, milliseconds(calls, seconds), made, batch, threads)
