"""How fast the live page refreshes: the time and size of its answer when a trial has ended, with
1,000 and with 5,000 trials in the ledger.

    python -m benchmarks.live                   # both sizes; making the ledgers takes minutes
    python -m benchmarks.live --trials 1000     # one size
    python -m benchmarks.live --quick           # the size for CI
    python -m benchmarks.live --keep DIR        # keep the ledgers there, or take them from there

The ledgers are written by the code of a real search (ask and tell of `search.study`), only the
results of the trials are made up."""

from __future__ import annotations

import math
import random
from pathlib import Path

from search.config import SearchConfig, from_source
from search.home import SearchFolder, write_atomically
from search.space_config import build_space
from search.study import Entry, Ledger
from search.yaml_source import parse

YAML = """\
name: live
description: made-up results, to measure the live page
task:
  dataset: digits
  model: {name: cresnet, depth: 20, width: 4}
  epochs: 10
space:
  method: [bnn, bnn+, bnn++]
  plan: {per: layer, levels: [F, W, B]}
  model.width: [2, 4, 8]
  optimizer.lr: {float: [0.001, 0.03], log: true}
objectives: {val_accuracy: max, flops: min}
search: {sampler: random, trials: 100}
"""
PRUNED, FAILED = 0.15, 0.03


def filled(root: Path, trials: int) -> SearchFolder:
    """A search of so many trials in `root`, unless it is there already; one more is running."""
    folder = SearchFolder(root / f"live-{trials}")
    if folder.exists:
        return folder
    settings = [f"search.trials={2 * trials}"]
    config = from_source(parse(YAML, "live.yaml"), settings, folder.name)
    folder.path.mkdir(parents=True)
    ledger = Ledger(folder.ledger_url, config, build_space(config))
    for number in range(trials):
        end_one(ledger, number)
    ledger.ask()
    write_atomically(folder.config_file, config.dump())
    return folder


def reopened(folder: SearchFolder, config: SearchConfig) -> Ledger:
    return Ledger(folder.ledger_url, config, build_space(config))


def end_one(ledger: Ledger, seed: int) -> Entry:
    """Ask for a trial and end it with a made-up result."""
    entry = ledger.ask()
    assert entry is not None
    rng = random.Random(seed)
    fate = rng.random()
    end = made_up_accuracy(entry, rng)
    curve = [
        {
            "epoch": epoch,
            "train_loss": 2.3 * math.exp(-epoch / 4),
            "val_accuracy": end * (1 - math.exp(-epoch / 2)),
            "flip_rate": 0.2 / epoch,
        }
        for epoch in range(1, 11)
    ]
    if fate < FAILED:
        return ledger.tell(entry.id, "failed", history=curve[:3], failure="nan", message="made up")
    if fate < FAILED + PRUNED:
        metrics = {**curve[2], "stopped_at": 0.3}
        return ledger.tell(entry.id, "pruned", metrics, curve[:3])
    return ledger.tell(entry.id, "complete", {**curve[-1], "val_accuracy": end}, curve)


def made_up_accuracy(entry: Entry, rng: random.Random) -> float:
    """Dearer networks are better, with diminishing returns and noise."""
    share = entry.costs["flops_pct"] / 100
    width = entry.spec.task.model.params["width"]
    return min(0.999, 0.7 + 0.2 * share**0.5 + 0.03 * math.log2(width) + rng.gauss(0, 0.01))
