"""Files for elsewhere: how large they are, and whether they predict what torch does on real images.

    python -m benchmarks.exports [--data-dir DIR] [--examples 200] [--only resnet18]

The networks are not trained: their norms are calibrated on training images, so that signs are as mixed
as in a trained one. Bars (issue of the runtime): ONNX of resnet18 with all layers of its body binary at
most 1/20 of the float file, same top-1 on 200 real images.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables import packed
from bitfront.trainables.models import build_model
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.exports.base import FORMATS
from bitfront.trainables.runtime.exports.deployment import deploy
from bitfront.trainables.runtime.exports.description import describe
from bitfront.trainables.runtime.exports.examples import examples_for
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.network import Network

RESULTS = Path(__file__).parent / "results"
# name: dataset, model, which layers are binary
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "resnet18": ("tiny-imagenet-20", {"name": "resnet18", "stem": "tiny"}, "body"),
    "resnet18 all": ("tiny-imagenet-20", {"name": "resnet18", "stem": "tiny"}, "all"),
    "cresnet20": ("cifar10", {"name": "cresnet20"}, "body"),
}
BAR = 20.0
CALIBRATION = 128


def network_of(case: str, data_dir: str | None, folder: Path) -> Path:
    """The packed file of a network whose norms have seen images."""
    dataset, model, scope = CASES[case]
    torch.manual_seed(0)
    task = Task.model_validate(
        {"dataset": dataset, "model": model, "binarize": scope, "data_dir": data_dir}
    )
    info = DATASETS.get(dataset)
    made: Any = build_model(model["name"], {k: v for k, v in model.items() if k != "name"},
                            info.shape, info.classes)
    letters = "B" * len(made.plan_layers(scope))
    spec = TrialSpec(task=task, method="bnn", params={"scale": "channel"}, plan=letters)
    network = Network(spec)
    images = examples_for(task, CALIBRATION, data_dir)
    if images.why:
        raise UserError(f"the benchmark needs {dataset}: {images.why}")
    for module in network.model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = None  # the mean over all batches
    network.model.train()
    with torch.no_grad():
        for part in images.x.split(32):
            network.model(part)
    path = folder / f"{case.replace(' ', '-')}.safetensors"
    packed.save(network, spec, path, {})
    return path


def float_bytes(case: str, x: Tensor, folder: Path) -> int:
    """The size of the same network in full precision as ONNX."""
    dataset, model, _ = CASES[case]
    info = DATASETS.get(dataset)
    params = {key: value for key, value in model.items() if key != "name"}
    full = build_model(model["name"], params, info.shape, info.classes).eval()
    task = Task.model_validate({"dataset": dataset, "model": model})
    about = describe(TrialSpec(task=task, method="bnn", plan="F"), {})
    from bitfront.trainables.runtime.exports.examples import Examples

    (made,) = deploy(full, about, {"onnx": folder / "full.onnx"}, Examples(x[:2], "images"), True)
    return made.bytes


def measure(case: str, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """A row per format."""
    network, spec, notes = packed.load(network_of(case, args.data_dir, folder))
    examples = examples_for(spec.task, args.examples, args.data_dir)
    whole = float_bytes(case, examples.x, folder)
    rows = []
    for name, each in FORMATS.items():
        started = time.process_time()
        target = folder / f"{case.replace(' ', '-')}{each.ending}"
        row: dict[str, Any] = {"network": case, "format": name, "float_onnx_bytes": whole}
        try:
            each.check_installed()
            (made,) = deploy(network, describe(spec, notes), {name: target}, examples)
        except UserError as error:
            rows.append(row | {"note": error.message})
            continue
        rows.append(
            row
            | {
                "bytes": made.bytes,
                "times_smaller": round(whole / made.bytes, 1),
                "images": made.examples,
                "same_top1": made.examples - made.undecided,
                "largest_difference": f"{made.difference:.2g}",
                "cpu_seconds": round(time.process_time() - started, 1),
                "note": made.unchecked,
            }
        )
        print({k: v for k, v in rows[-1].items() if v != ""}, flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--only", choices=CASES)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in [args.only] if args.only else CASES:
            rows += measure(case, args, Path(folder))
    fields = list(dict.fromkeys(key for row in rows for key in row))
    with (RESULTS / "exports.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, restval="")
        writer.writeheader()
        writer.writerows(rows)
    held = [
        row["network"] == "resnet18" and row.get("times_smaller", 0) >= BAR
        and row["same_top1"] == row["images"]
        for row in rows if row["format"] == "onnx"
    ]
    print(f"bar (resnet18, 1/{BAR:g} of the float file, same top-1): {'held' if any(held) else 'missed'}")
    return 0 if any(held) or args.only else 1


if __name__ == "__main__":
    raise SystemExit(main())
