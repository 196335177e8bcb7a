"""Which `task.activations` makes networks trainable with binary activations that were not written
for them: every choice, with all layers B and with every second one, on part of CIFAR-10.

    python -m benchmarks.treatments --data-dir DATA    # writes docs/results/activations.md

Small networks of timm: a ResNet and a network with attention over channels (ReLU), an EfficientNet
(SiLU), a ConvNeXt (GELU). Method bnn with a scale per channel, Adam, the same seed. A run that is
interrupted continues from benchmarks/results/treatments.csv. About ten minutes of one core."""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path
from typing import Any

from benchmarks.table import RESULTS, append_csv
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.settings import TREATED_INPUTS
from bitfront.trainables.task import Task, TrialSpec

NETWORKS = {
    "timm/test_resnet": "ReLU",
    "timm/test_byobnet": "ReLU",
    "timm/test_efficientnet": "SiLU",
    "timm/test_convnext": "GELU",
}
CHOICES = ("keep", "norm", "shift", "binrelu", "hardtanh", "rprelu")
PLANS = {"all B": "B", "half B": "FB"}
CSV = RESULTS / "treatments.csv"
PAGE = Path(__file__).parent.parent / "docs" / "results" / "activations.md"


def spec_of(network: str, choice: str, letters: str, args: argparse.Namespace) -> TrialSpec:
    task = Task.model_validate(
        {
            "dataset": args.dataset,
            "subset": args.subset,
            "data_dir": args.data_dir,
            "model": network,
            "activations": choice,
            "epochs": args.epochs,
            "batch_size": 64,
        }
    )
    layers = len(task_cost_table(task).plan_layers)
    plan = (letters * layers)[:layers]
    return TrialSpec(task=task, method="bnn", params={"scale": "channel"}, plan=plan)


def accuracy(spec: TrialSpec) -> float:
    from bitfront.trainables.training.loop import Training
    from bitfront.trainables.training.parts import search_data

    training = Training(spec, *search_data(spec.task))
    while not training.done:
        training.epoch()
    return 100 * training.history[-1]["val_accuracy"]


def known() -> dict[tuple[str, str, str], float]:
    """Accuracies that a former run measured, by network, plan and choice."""
    if not CSV.exists():
        return {}
    with CSV.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {(r["network"], r["plan"], r["activations"]): float(r["accuracy %"]) for r in rows}


def page(found: dict[tuple[str, str, str], float], args: argparse.Namespace) -> str:
    """docs/results/activations.md."""
    lines = [
        "# Binary activations in networks that were not written for them",
        "",
        "Written by `python -m benchmarks.treatments --data-dir DATA`: validation accuracy in % of",
        f"small networks of timm after {args.epochs} epochs on {args.subset:,} images of",
        f"{args.dataset} (a fifth of them for validation), method `bnn` with a scale per channel,",
        "one seed; 10 is chance. `half B`: every second layer. Rows are choices of",
        "`task.activations`.",
        "",
        "| activations | " + " | ".join(f"{n}, {p}" for n in NETWORKS for p in PLANS) + " | mean |",
        "|---|" + "---|" * (len(NETWORKS) * len(PLANS) + 1),
    ]
    for choice in CHOICES:
        values = [found.get((n, p, choice)) for n in NETWORKS for p in PLANS]
        measured: list[Any] = [v for v in values if v is not None]
        mean = f"{sum(measured) / len(measured):.1f}" if measured else ""
        cells = ["" if v is None else f"{v:.1f}" for v in values]
        lines.append(f"| {choice} | " + " | ".join(cells) + f" | {mean} |")
    lines += [
        "",
        f"One seed and {args.subset // 5} images for validation: the standard error of a cell is",
        "about two points from these images alone, so that the five choices that do something",
        "cannot be ranked by this table. What it shows: `keep` is at chance in the ResNet and",
        "behind in the other ReLU network; behind GELU and SiLU, which keep the sign of their",
        "input, no choice is clearly better than `keep`.",
        "",
        "`norm` is what `auto` stands for in networks of libraries and of your own, not because it",
        "is the most accurate: it needs no module to replace, so that it works with `F.relu` too,",
        "leaves layers in full precision as they are, and starts without a look at the data. It",
        f"stores {TREATED_INPUTS['norm']} numbers per input channel of a binary layer, `shift`",
        f"{TREATED_INPUTS['shift']}; the other three replace the activations of the whole network.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", default=os.environ.get("BITFRONT_DATA"))
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--subset", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    found = known()
    for network in NETWORKS:
        for plan, letters in PLANS.items():
            for choice in CHOICES:
                if (network, plan, choice) in found:
                    continue
                reached = accuracy(spec_of(network, choice, letters, args))
                row = {"network": network, "plan": plan, "activations": choice}
                append_csv({**row, "accuracy %": round(reached, 2)}, CSV)
                print(network, plan, choice, f"{reached:.1f}", flush=True)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(known(), args), encoding="utf-8")


if __name__ == "__main__":
    main()
