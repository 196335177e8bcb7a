"""Small packed networks that the tests of formats share. They were not trained: norms have drawn
statistics, as if they had been."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from bitfront.trainables import packed
from bitfront.trainables.runtime.exports.base import FORMATS
from bitfront.trainables.runtime.exports.deployment import Deployed, deploy
from bitfront.trainables.runtime.exports.description import describe
from bitfront.trainables.runtime.exports.examples import Examples, examples_for
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.network import Network
from testbed.binary_nets import drawn_statistics

MLP = {"name": "mlp", "depth": 3, "width": 20}
RESIDUAL = {"name": "cresnet", "depth": 8, "width": 8}
# Every level, scales per channel and none, learned shifts, pruned layers, a norm before the sign.
NETWORKS: dict[str, dict[str, Any]] = {
    "levels": {"model": RESIDUAL, "plan": "ABWFBA", "method": "react", "scale": "learned"},
    "plain": {"model": RESIDUAL, "plan": "BBBBBB", "method": "bnn", "scale": "none"},
    "pruned": {"model": MLP, "plan": "WWWW", "method": "edge-popup", "scope": "all", "rate": 0.5},
    "wide": {
        "model": {"name": "mobilenet", "form": "depthwise", "width": 8},
        "plan": "B" * 26,
        "method": "bnn",
        "activations": "norm",
    },
    "vit": {
        "model": {"name": "tinyvit", "depth": 1, "width": 32},
        "plan": "WWWW",
        "method": "bnn",
    },
}


@pytest.fixture(scope="session")
def packed_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The packed file of one of NETWORKS."""
    folder = tmp_path_factory.mktemp("packed")

    @cache
    def made(name: str) -> Path:
        given = dict(NETWORKS[name])
        torch.manual_seed(0)
        task = Task.model_validate(
            {
                "dataset": "digits",
                "model": given.pop("model"),
                "binarize": given.pop("scope", "body"),
                "activations": given.pop("activations", "keep"),
            }
        )
        spec = TrialSpec(
            task=task, plan=given.pop("plan"), method=given.pop("method"), params=given
        )
        network = Network(spec)
        for module in network.model.modules():
            drawn_statistics(module)
        path = folder / f"{name}.safetensors"
        packed.save(network, spec, path, {"test_accuracy": 0.5})
        return path

    return made


@pytest.fixture(scope="session")
def deployed(
    packed_file: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Deployed]:
    """One of NETWORKS as a file, compared with torch on eight digits; written once."""
    folder = tmp_path_factory.mktemp("deployed")

    @cache
    def made(name: str, format_: str) -> Deployed:
        network, spec, notes = packed.load(packed_file(name))
        target = folder / f"{name}{FORMATS.get(format_).ending}"
        examples: Examples = examples_for(spec.task, 8)
        (one,) = deploy(network, describe(spec, notes), {format_: target}, examples)
        return one

    return made
