"""Reads and writes truth tables: the results of all plans of small real problems."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bitfront.search.config.load import load
from bitfront.search.config.schema import SearchConfig
from bitfront.spaces.space import Space
from bitfront.trainables.own_code.places import look_in
from bitfront.trainables.parameters import Value

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Truth:
    """The results of every plan of a network: validation accuracies by seed and epoch, and
    costs."""

    config: SearchConfig
    plans: list[str]
    seeds: list[int]
    accuracy: np.ndarray
    """(plans, seeds, epochs)"""
    costs: dict[str, np.ndarray]
    """name -> (plans,)"""

    @property
    def epochs(self) -> int:
        return int(self.accuracy.shape[2])

    @property
    def final(self) -> np.ndarray:
        """The accuracies after the last epoch, mean over the seeds."""
        mean: np.ndarray = self.accuracy[:, :, -1].mean(1)
        return mean


def method_of(config: SearchConfig) -> tuple[str, dict[str, Value]]:
    """(method, its parameters) of all trials of a table."""
    method = str(config.space["method"])
    own = f"{method}."
    given = {k.removeprefix(own): v for k, v in config.space.items() if k.startswith(own)}
    return method, given


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


def search(name: str) -> tuple[SearchConfig, Space]:
    """The search whose points the table holds."""
    return load(FOLDER / f"{name}.yaml")


def read(name: str, folder: Path = FOLDER) -> Truth:
    look_in(FOLDER)
    with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
        header = json.loads(str(stored["header"]))
        return Truth(
            config=SearchConfig.model_validate(header["config"]),
            plans=[str(plan) for plan in stored["plans"]],
            seeds=header["seeds"],
            accuracy=stored["accuracy"].astype(np.float64),
            costs={cost: stored[f"cost_{cost}"] for cost in header["costs"]},
        )


def write(name: str, truth: Truth, facts: dict[str, Any], folder: Path = FOLDER) -> Path:
    """Write the table as one compressed file and return its path. Accuracies are float32: float16
    would round fractions of a few hundred examples."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npz"
    header = {
        "config": truth.config.model_dump(mode="json"),
        "seeds": truth.seeds,
        "costs": sorted(truth.costs),
        **facts,
    }
    columns = {f"cost_{cost}": values for cost, values in truth.costs.items()}
    np.savez_compressed(
        path,
        header=np.array(json.dumps(header)),
        plans=np.array(truth.plans),
        accuracy=truth.accuracy.astype(np.float32),
        **columns,  # type: ignore[arg-type]
    )
    return path
