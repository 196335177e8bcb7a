"""Measures networks under many plans side by side, for device tables and for the points of a front.
What follows from the times is in `additive`; how a network is made is in `planned`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata

import numpy as np
import torch
from torch import nn

from bitfront.trainables.costs.devices import NetworkTimes
from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.additive import (
    agreement,
    checked_plans,
    fitted_plans,
    layer_times,
)
from bitfront.trainables.runtime.machine import KERNELS, has_kernels
from bitfront.trainables.runtime.planned import MEASURED, Subject
from bitfront.trainables.runtime.threads import using
from bitfront.trainables.runtime.timing import clock

FEWEST_ROUNDS = 7
MOST_ROUNDS = 100
# Calls of a plan in a round follow each other for so long, behind one that is not counted.
BLOCK_MS = 3.0

Call = Callable[[], object]
Told = Callable[[str], None]


def side_by_side(calls: Mapping[str, Call], seconds: float) -> dict[str, float]:
    """Milliseconds of each call, measured in rounds of another order each, as many as fit into so
    many seconds of computation. A round in which the machine was slow is slow for all of them: what
    a round adds to all is taken out before the medians."""
    now, rng = clock(), random.Random(0)

    def timed(call: Call, times: int) -> float:
        begin = now()
        for _ in range(times):
            call()
        return 1000 * (now() - begin) / times

    names = list(calls)
    for call in calls.values():
        call()
    times = {n: max(1, round(BLOCK_MS / max(timed(c, 1), 1e-3))) for n, c in calls.items()}
    rounds: list[list[float]] = []
    end = time.process_time() + seconds
    while len(rounds) < FEWEST_ROUNDS or time.process_time() < end:
        found = {}
        for name in rng.sample(names, len(names)):
            calls[name]()
            found[name] = timed(calls[name], times[name])
        rounds.append([max(found[name], 1e-6) for name in names])
        if len(rounds) == MOST_ROUNDS:
            break
    return dict(zip(names, centres(np.array(rounds)), strict=True))


def centres(rounds: np.ndarray) -> list[float]:
    """The time of every column of (rounds, calls), by medians of logarithms: t = column + round."""
    logs = np.log(rounds)
    by_round = np.zeros(len(logs))
    for _ in range(5):
        columns = np.median(logs - by_round[:, None], axis=0)
        by_round = np.median(logs - columns, axis=1)
        by_round -= np.median(by_round)
    return [float(value) for value in np.exp(columns)]


def whole_times(
    subjects: Mapping[str, tuple[Subject, str]], batch: int, threads: int, seconds: float
) -> dict[str, float]:
    """Milliseconds per call of networks under plans, by name."""
    with using(threads), torch.inference_mode():
        calls = {}
        for name, (subject, plan) in subjects.items():
            network, x = subject.at(plan).network, subject.inputs(batch)
            calls[name] = lambda network=network, x=x: network(x)
        return side_by_side(calls, seconds)


def measure(
    subject: Subject,
    called: str,
    levels: str = MEASURED,
    batch: int = 1,
    threads: int = 1,
    seconds: float = 20.0,
    checks: int = 20,
) -> NetworkTimes:
    """The times of the layers of a network at these levels, F and B always among them, and how far
    their sums are from plans that were measured whole."""
    unknown = set(levels) - set(MEASURED)
    if unknown:
        raise UserError(
            f"level {min(unknown)} cannot be measured: no runtime computes it as a device would",
            f"--levels {MEASURED}",
        )
    names = [layer.name for layer in subject.layers]
    if not names:
        raise UserError(f"{called} has no layer to plan")
    measured = "".join(letter for letter in MEASURED if letter in {"F", "B", *levels})
    fitted = fitted_plans(len(names))
    fitted += ["W" * len(names)] if "W" in measured else []
    checked = checked_plans(len(names), measured, checks)
    plans = {plan: (subject, plan) for plan in [*fitted, *checked]}
    whole = whole_times(plans, batch, threads, seconds)
    others = [layer.name for layer in subject.table.layers if layer.name not in names]
    shares = _shares(subject, [*names, *others], batch, threads)
    layers, rest = layer_times(
        {plan: whole[plan] for plan in fitted},
        names,
        shares[: len(names)],
        sum(shares[len(names) :]),
    )
    return NetworkTimes(
        model=called,
        layers=layers,
        rest=rest,
        whole=whole,
        agreement=agreement(layers, rest, {plan: whole[plan] for plan in checked}),
        kernels=KERNELS if has_kernels() else 0,
        versions=_versions(),
        measured=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )


def _versions() -> dict[str, str]:
    found = {"torch": str(torch.__version__)}
    if has_kernels():
        found["numba"] = metadata.version("numba")
    return found


def _shares(subject: Subject, names: Sequence[str], batch: int, threads: int) -> list[float]:
    """The shares of the layers in the time of the network in full precision, from inside."""
    found: dict[str, list[float]] = {name: [] for name in ("", *names)}  # "": the network itself
    x = subject.inputs(batch)
    with using(threads), torch.inference_mode(), _watched(subject.full, found):
        for _ in range(3 * FEWEST_ROUNDS):
            subject.full(x)
    calls = len(found[""])
    sums = {name: np.reshape(times, (calls, -1)).sum(axis=1) for name, times in found.items()}
    return [float(np.median(sums[name] / np.maximum(sums[""], 1e-9))) for name in names]


@contextmanager
def _watched(network: nn.Module, found: Mapping[str, list[float]]) -> Iterator[None]:
    """Inside, the seconds of every call of these modules are noted."""
    now, hooks = clock(), []
    modules = dict(network.named_modules())
    for name in found:
        module = modules.get(name)
        if module is None:  # a projection of an attention is no module before it is opened
            continue
        begun: list[float] = []
        hooks += [
            module.register_forward_pre_hook(lambda _m, _x, begun=begun: begun.append(now())),
            module.register_forward_hook(
                lambda _m, _x, _y, begun=begun, name=name: found[name].append(now() - begun.pop())
            ),
        ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
