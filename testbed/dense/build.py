"""Train points of a space and fit the perceptrons that answer for the others.

    python -m testbed.dense.build blocks         # minutes of one core
    python -m testbed.dense.build edge-popup

Each point is trained by the `Worker` of a search. An interrupted build continues: finished trials
are stored in `--work`."""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from bitfront.search.front import Objective, layers
from testbed import dense
from testbed.truth.build import train

OBJECTIVES = [Objective("accuracy", True), Objective("flops", False)]
# Points of a generation, those trained with a second seed, and parts of the cross-validation.
GENERATION, REPEATED, PARTS = 40, 24, 5
STEPS, DECAY = 1500, 3e-3


def trained(name: str, count: int, work: Path) -> tuple[np.ndarray, np.ndarray, float]:
    """Points as rows, their accuracies, and the deviation of a seed."""
    _, space = dense.search(name)
    inputs, rng = dense.Inputs(space), np.random.default_rng(0)
    work.mkdir(parents=True, exist_ok=True)
    kept = work / f"dense-{name}.jsonl"
    done = dict(map(json.loads, kept.read_text().splitlines())) if kept.exists() else {}

    def accuracy(row: np.ndarray, seed: int) -> float:
        point = inputs.at(row)
        key = json.dumps([point, seed])
        if key not in done:
            spec = space.walk(lambda n, d: point.get(n, dense.only(d)), seed)
            done[key] = train(spec.canonical().model_dump(mode="json"))[-1]
            with kept.open("a") as out:
                out.write(json.dumps([key, done[key]]) + "\n")
        return float(done[key])

    price = dense.prices(inputs)
    rows = np.zeros((0, len(inputs.domains)))
    found: list[float] = []
    while len(rows) < count:
        new = inputs.drawn(rng, GENERATION)
        if len(rows):
            ranks = layers(list(zip(found, price(rows).tolist(), strict=True)), OBJECTIVES)
            best = [i for rank in ranks for i in rank][:GENERATION]
            new[::2] = inputs.changed(rows[rng.choice(best, GENERATION // 2)], rng)
        found += [accuracy(row, 0) for row in new]
        rows = np.concatenate([rows, new])
        print(f"{name}: {len(rows)} of {count} points", flush=True)
    again = rng.choice(len(rows), REPEATED, replace=False)
    apart = [accuracy(rows[i], 1) - found[i] for i in again]
    return rows, np.array(found), float(np.std(apart) / np.sqrt(2))


def fitted(rows: np.ndarray, accuracy: np.ndarray) -> dict[str, np.ndarray]:
    """Perceptrons of two hidden layers, by Adam on all points at once."""
    import torch

    generator = torch.Generator().manual_seed(0)
    shift, scale = float(accuracy.mean()), float(accuracy.std())
    x = torch.tensor(rows, dtype=torch.float64)
    y = torch.tensor((accuracy - shift) / scale)[None, :, None]
    sizes = [rows.shape[1], dense.HIDDEN, dense.HIDDEN, 1]
    weights: dict[str, Any] = {}
    for k in range(3):
        w = torch.randn(dense.COUNT, sizes[k], sizes[k + 1], generator=generator, dtype=x.dtype)
        weights[f"w{k}"] = (w / sizes[k] ** 0.5).requires_grad_()
        bias = 0.5 * torch.randn(dense.COUNT, sizes[k + 1], generator=generator, dtype=x.dtype)
        weights[f"b{k}"] = bias.requires_grad_()
    decayed = [weights[f"w{k}"] for k in range(3)]
    others = [weights[f"b{k}"] for k in range(3)]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        h = x.expand(dense.COUNT, *x.shape)
        for k in range(3):
            h = torch.baddbmm(weights[f"b{k}"][:, None], h, weights[f"w{k}"])
            h = torch.tanh(h) if k < 2 else h
        loss = ((h - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    found = {key: value.detach().numpy() for key, value in weights.items()}
    return found | {"scale": np.array([shift, scale])}


def checked(rows: np.ndarray, accuracy: np.ndarray) -> tuple[float, float]:
    """Rank correlation with the points that were left out, and the root of the mean square of what
    they are missed by."""
    part = np.random.default_rng(1).integers(PARTS, size=len(rows))
    guessed = np.zeros(len(rows))
    for k in range(PARTS):
        guessed[part == k] = dense.answer(
            fitted(rows[part != k], accuracy[part != k]), rows[part == k]
        )
    rank = float(spearmanr(guessed, accuracy).statistic)
    return rank, float(np.sqrt(((guessed - accuracy) ** 2).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="a YAML of testbed/dense: blocks, edge-popup")
    parser.add_argument("--points", type=int, default=400)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "bitfront-truth")
    parser.add_argument("--out", type=Path, default=dense.FOLDER)
    args = parser.parse_args()
    rows, accuracy, noise = trained(args.name, args.points, args.work)
    rank, missed = checked(rows, accuracy)
    config, _ = dense.search(args.name)
    header = {
        "config": config.model_dump(mode="json"),
        "points": len(rows),
        "noise": round(noise, 5),
        "rank correlation": round(rank, 4),
        "missed by": round(missed, 5),
        "torch": metadata.version("torch"),
    }
    weights = {k: v.astype(np.float32) for k, v in fitted(rows, accuracy).items()}
    path = args.out / f"{args.name}.npz"
    np.savez_compressed(path, header=np.array(json.dumps(header)), **weights)  # type: ignore[arg-type]
    shown = {key: value for key, value in header.items() if key != "config"}
    print(f"{path.name}: {path.stat().st_size} bytes, {shown}")


if __name__ == "__main__":
    main()
