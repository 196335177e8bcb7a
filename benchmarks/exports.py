"""Files for elsewhere: how large they are, and whether they predict what torch does on real images.

    python -m benchmarks.exports [--data-dir DIR] [--examples 200] [--steps 150] [--only resnet18]

The networks are trained for a moment (--steps of 64 images), on images that files are not compared
on. Bars: the ONNX file of resnet18, its body all B, is at most 1/20 of the float one, and predicts
the same class for 200 real images.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.table import bar, csv_path, write_csv
from bitfront.trainables import packed
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.models import build_model
from bitfront.trainables.runtime.exports.base import FORMATS
from bitfront.trainables.runtime.exports.deployment import deploy
from bitfront.trainables.runtime.exports.description import describe
from bitfront.trainables.runtime.exports.examples import Examples, examples_for
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.network import Network
from bitfront.trainables.training.parts import search_data

# name: dataset, model, which layers are binary
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "resnet18": ("cifar10", {"name": "resnet18", "stem": "tiny"}, "body"),
    "resnet18 all": ("cifar10", {"name": "resnet18", "stem": "tiny"}, "all"),
    "cresnet20": ("cifar10", {"name": "cresnet20"}, "body"),
}
SMALLER = 20.0
BATCH = 64
# The first images of the validation part are not trained on.
COMPARED = 500


def images_of(task: Task, data_dir: str | None) -> tuple[Tensor, Tensor]:
    """Images of the validation part with their labels, but for those that files are compared on."""
    _, part = search_data(task.model_copy(update={"data_dir": data_dir, "subset": 20_000}))
    found: Any = part
    return found.x[COMPARED:], found.y[COMPARED:]


def trained(network: Network, x: Tensor, y: Tensor, steps: int) -> None:
    """Some steps of Adam, far from what a network can reach, and norms that have seen images."""
    parameters = [p for p in network.model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, 2e-3)
    draw = torch.Generator().manual_seed(0)
    network.model.train()
    for _ in range(steps):
        chosen = torch.randint(len(x), (BATCH,), generator=draw)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network.model(x[chosen]), y[chosen]).backward()
        optimizer.step()
    for module in network.model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
            module.momentum = None  # the mean over all batches
    with torch.no_grad():
        for part in x[:512].split(BATCH):
            network.model(part)


def network_of(case: str, data_dir: str | None, folder: Path, steps: int) -> Path:
    """The packed file of a network that was trained for a moment."""
    dataset, model, scope = CASES[case]
    torch.manual_seed(0)
    task = Task.model_validate(
        {"dataset": dataset, "model": model, "binarize": scope, "data_dir": data_dir}
    )
    info = DATASETS.get(dataset)
    made: Any = build_model(
        model["name"], {k: v for k, v in model.items() if k != "name"}, info.shape, info.classes
    )
    letters = "B" * len(made.plan_layers(scope))
    spec = TrialSpec(task=task, method="bnn", params={"scale": "channel"}, plan=letters)
    network = Network(spec)
    trained(network, *images_of(task, data_dir), steps)
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
    (made,) = deploy(full, about, {"onnx": folder / "full.onnx"}, Examples(x[:2], "images"), True)
    return made.bytes


def measure(case: str, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """A row per format."""
    network, spec, notes = packed.load(network_of(case, args.data_dir, folder, args.steps))
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
                "times_smaller": whole / made.bytes,
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
    parser.add_argument("--steps", type=int, default=150, help="of training (150)")
    parser.add_argument("--only", choices=CASES)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in [args.only] if args.only else CASES:
            rows += measure(case, args, Path(folder))
    write_csv(rows, csv_path("exports", ["torch", "onnxruntime"]))
    held = [row for row in rows if (row["network"], row["format"]) == ("resnet18", "onnx")]
    for row in held:
        print(bar("ONNX of resnet18, times smaller", row["times_smaller"], at_least=SMALLER))
        print(bar("images of the same class", row["same_top1"], at_least=row["images"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
