"""How much smaller a packed network is than its float32 weights: the file itself is written and
read back. Random weights suffice, since a bit is a bit.

    python -m benchmarks.memory [--quick]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from benchmarks.table import Row, bar, csv_path, format_table, write_csv
from bitfront.trainables import packed
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.network import Network

MODELS = ("vit-b16", "deit-b", "deit-s", "deit-t", "swin-t", "resnet50", "resnet20")
# Times smaller, by how what is not binary is stored; 32 is the limit.
BARS = {"float32": 24.0, "float16": 27.0}


def measure(model: str, folder: Path) -> list[Row]:
    """The body's weights binary with one scale a layer, all the rest as stored."""
    task = Task.model_validate({"dataset": "cifar10", "model": model})
    table = task_cost_table(task)
    plan = "W" * len(table.plan_layers)
    spec = TrialSpec(task=task, method="bnn", params={"scale": "layer"}, plan=plan)
    torch.manual_seed(0)
    network = Network(spec)
    full = sum(4 * p.numel() for p in network.model.parameters())
    full += sum(4 * b.numel() for b in network.model.buffers() if b.is_floating_point())
    rows: list[Row] = []
    for rest in packed.RESTS:
        packed.round_rest(network, rest)
        path = folder / f"{model}-{rest}.safetensors"
        packed.save(network, spec, path, {}, rest)
        packed.load(path)
        size = path.stat().st_size
        rows.append(
            {
                "model": model,
                "rest": rest,
                "float32_bytes": full,
                "file_bytes": size,
                "times_smaller": full / size,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ViT-B/16 only")
    models = MODELS[:1] if parser.parse_args().quick else MODELS
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            rows += measure(model, Path(folder))
    print(format_table(rows))
    for row in rows:
        if row["model"] == "vit-b16":
            rest = str(row["rest"])
            value = float(row["times_smaller"] or 0)
            print(bar(f"ViT-B/16, the rest in {rest}, times smaller", value, BARS[rest]))
    if models == MODELS:
        write_csv(rows, csv_path("memory", ["torch", "timm"]))


if __name__ == "__main__":
    main()
