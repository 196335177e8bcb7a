"""Layers on packed bits that follow each other in a network, run by one call: values between them
never become tensors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables.runtime import jobs, threads
from bitfront.trainables.runtime.jobs import Form, Job
from bitfront.trainables.runtime.layers import Finished, Packed
from bitfront.trainables.runtime.machine import Kernel

# Jobs are kept for so many forms of inputs per thread that calls, and while they are this small.
KEPT, LARGEST_KEPT = 4, 2**28


@dataclass(frozen=True)
class Link:
    """A layer of a chain. Values have numbers: first the inputs of the chain, then what its layers
    give, in their order."""

    layer: Finished
    source: int
    residual: int | None = None
    """what a shortcut brings"""


class Links:
    """Layers that are run together."""

    def __init__(self, links: Sequence[Link], inputs: int, outputs: Sequence[int]) -> None:
        self.links = list(links)
        self.inputs = inputs
        self.outputs = list(outputs)
        """the values that are returned"""
        self.dimensions = self._dimensions()
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return Links, (self.links, self.inputs, self.outputs)

    def _dimensions(self) -> dict[int, int]:
        """By value, the dimensions with which its layers see it."""
        found = {}
        for number, link in enumerate(self.links):
            for value in (link.source, link.residual, self.inputs + number):
                if value is not None:
                    found[value] = link.layer.dimensions
        return found

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """The outputs, as tensors of their own."""
        for x in given:
            if x.dtype is not torch.float32 or x.device.type != "cpu":
                raise TypeError(f"kernels take float32 on the CPU, not {x.dtype} on {x.device}")
        count = threads.threads()
        key = (count, *((x.shape, x.stride()) for x in given))
        kept: dict[Any, Any] = self._local.__dict__
        made = kept.get(key)
        if made is None:
            made = self._made(count, given)
            while len(kept) >= KEPT:
                del kept[next(iter(kept))]
            if made[0].bytes < LARGEST_KEPT:
                kept[key] = made
        job, forms = made
        inputs = [jobs.placed(x, self.dimensions[value]) for value, x in enumerate(given)]
        for value, x in enumerate(inputs):
            for row, field in job.slots[value]:
                job.table[row, field] = x.data_ptr()
        results = []
        for value in self.outputs:
            buffer, view = jobs.result(forms[value], self.dimensions[value])
            for row, field in job.slots[value]:
                job.table[row, field] = buffer.data_ptr()
            results.append(view)
        if job.work:
            threads.run(job)
        shapes = (
            jobs.seen(view, forms[value], self.dimensions[value])
            for value, view in zip(self.outputs, results, strict=True)
        )
        return tuple(shapes)

    def _made(self, count: int, given: Sequence[Tensor]) -> tuple[Job, dict[int, Form]]:
        """A job for inputs of these forms, and the forms of all values."""
        forms = {n: jobs.form_of(x, self.dimensions[n]) for n, x in enumerate(given)}
        job, rooms = Job(count), {}
        last = jobs.values_of(self.links, self.inputs)
        for number, link in enumerate(self.links):
            value = self.inputs + number
            form = forms[value] = jobs.form_after(link.layer, forms[link.source])
            if link.residual is not None and forms[link.residual].images != form.images:
                wrong = forms[link.residual].shape
                raise RuntimeError(f"a shortcut of shape {wrong} for outputs of {form.shape}")
            if value in self.outputs or value not in last:
                room: Any = value
            else:
                room = rooms[value] = job.scratch(form.pixels * form.images[3])
            source = rooms.get(link.source, link.source)
            residual = None if link.residual is None else rooms.get(link.residual, link.residual)
            if form.pixels:
                job.add(link.layer, forms[link.source], source, residual, room)
            for read in {link.source, link.residual}:
                if read in rooms and last[read] == number:
                    job.give_back(rooms[read])
        job.finish()
        return job, forms


class Chain(nn.Module):
    """A module that runs links, and keeps their layers."""

    def __init__(self, links: Links) -> None:
        super().__init__()
        self.links = links
        self.layers = nn.ModuleList(link.layer for link in links.links)

    def forward(self, *given: Tensor) -> Any:
        """The output, or a tuple of several."""
        found = self.links(*given)
        return found[0] if len(found) == 1 else found


class PackedLayer(Packed):
    """A binary layer that computes on bits; called with the float input of the layer it is made
    from, it returns what that layer does, bit for bit."""

    def __init__(self, layer: nn.Module, kernel: Kernel | None = None) -> None:
        super().__init__(layer, kernel)
        self._alone: Any = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy makes its own: links name their layer, which is this one.
        return self.__dict__ | {"_alone": None}

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """The outputs; `residual`: what a shortcut brings, of their shape."""
        if self._alone is None:
            self._alone = Links([Link(self, 0)], 1, [1]), Links([Link(self, 0, 1)], 2, [2])
        plain, added = self._alone
        found: tuple[Tensor, ...] = plain(x) if residual is None else added(x, residual)
        return found[0]
