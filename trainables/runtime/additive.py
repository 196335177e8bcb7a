"""Latency as a sum over layers: which plans of a network are measured whole, and the times of its
layers that are fitted to them. Numbers in, numbers out; measuring is in `measuring`.

A layer alone, or alone at its level, says little: among full-precision layers a binary one finds
cold caches and takes three times as long as among binary ones. What predicts whole networks are the
times that fit best to whole networks of mixed plans."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bitfront.trainables.costs.devices import Agreement

Floats = NDArray[np.float64]
# Plans measured for each number that is fitted.
PLANS_PER_NUMBER = 3.0
# How much more each uniform plan counts than a mixed one: both ends of a front are near them.
UNIFORM_WEIGHT = 2.0


def fitted_plans(count: int, seed: int = 0) -> list[str]:
    """Plans of F and B for a network of so many layers, among them all-F and all-B. The share of
    binary layers is drawn evenly, so that plans near both ends are among them."""
    wanted = min(2**count, round(PLANS_PER_NUMBER * (count + 1)) + 2)
    rng = random.Random(f"{count}/{seed}/fitted")
    plans = dict.fromkeys(["F" * count, "B" * count])
    while len(plans) < wanted:
        share = rng.random()
        plans["".join("B" if rng.random() < share else "F" for _ in range(count))] = None
    return list(plans)


def checked_plans(count: int, levels: str, number: int, seed: int = 0) -> list[str]:
    """Random plans that nothing is fitted to: a level drawn for every layer."""
    known = set(fitted_plans(count, seed))
    rng = random.Random(f"{count}/{seed}/checked")
    plans: dict[str, None] = {}
    for _ in range(50 * number):
        if len(plans) == number:
            break
        plan = "".join(rng.choice(levels) for _ in range(count))
        if plan not in known and len(set(plan)) > 1:
            plans[plan] = None
    return list(plans)


def effects(whole: Mapping[str, float]) -> tuple[float, Floats]:
    """(time of all-F, what each layer changes when it becomes B) by least squares of the relative
    errors over these plans of F and B."""
    plans = [plan for plan in whole if set(plan) <= set("FB")]
    times = np.array([whole[plan] for plan in plans])
    uniform = np.array([len(set(plan)) < 2 for plan in plans])
    rows = np.array([[1.0, *(letter == "B" for letter in plan)] for plan in plans])
    weight = np.where(uniform, UNIFORM_WEIGHT, 1.0) / times
    found = np.linalg.lstsq(rows * weight[:, None], times * weight, rcond=None)[0]
    return float(found[0]), found[1:]


def layer_times(
    whole: Mapping[str, float], names: Sequence[str], shares: Sequence[float], others: float = 0.0
) -> tuple[dict[str, dict[str, float]], float]:
    """(times of the layers by name and level, time of the rest), which add up to what the fit says
    of every plan. The fit knows differences only: the rest are the `others`, layers that no plan
    decides, by their share in the time of all-F; what is left of all-B is shared out by the
    `shares` of the layers. So norms and activations count with the layers they follow, as they
    are computed with them at B. W layers run as F layers do; what all of them change together is
    shared out evenly."""
    full, changes = effects(whole)
    count = len(names)
    binary = max(0.0, full + float(changes.sum()))
    rest = min(full * others, binary)
    weights = np.maximum(np.array(shares), 1e-6)
    at_b = (binary - rest) * weights / weights.sum()
    at_f = at_b - changes
    # A layer that is slower at B by more than it has: both levels rise, the rest falls.
    short = np.maximum(-at_f, 0.0)
    at_b, at_f, rest = at_b + short, at_f + short, rest - float(short.sum())
    all_w = whole.get("W" * count)
    each_w = 0.0 if all_w is None else (all_w - whole["F" * count]) / count
    layers = {}
    for name, one, other in zip(names, at_f, at_b, strict=True):
        layers[name] = {"F": float(one)}
        if all_w is not None:
            layers[name]["W"] = max(0.0, float(one + each_w))
        layers[name]["B"] = float(other)
    return layers, max(0.0, rest)


def predicted(layers: Mapping[str, Mapping[str, float]], rest: float, plan: str) -> float:
    """The time of a plan as the sum over its layers."""
    return rest + sum(times[letter] for times, letter in zip(layers.values(), plan, strict=True))


def agreement(
    layers: Mapping[str, Mapping[str, float]], rest: float, checked: Mapping[str, float]
) -> Agreement:
    """How well the sums predict these plans, which were measured whole."""
    if not checked:
        return Agreement(plans=0, error_pct=0.0)
    sums = np.array([predicted(layers, rest, plan) for plan in checked])
    times = np.array(list(checked.values()))
    error = float(np.mean(np.abs(sums - times) / times))
    return Agreement(plans=len(checked), error_pct=100 * error, rank=rank(sums, times))


def rank(one: Sequence[float] | Floats, two: Sequence[float] | Floats) -> float | None:
    """Spearman's correlation; None for fewer than three values or where all are the same."""
    if len(one) < 3 or len(set(one)) < 2 or len(set(two)) < 2:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(one, two).statistic)
