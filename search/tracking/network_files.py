"""What the run of a final training gets of its network: the packed file, the ONNX file, and a model
that `mlflow models serve` runs."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import numpy as np
from mlflow.models import ModelSignature
from mlflow.types.schema import Schema, TensorSpec

from bitfront.search import kept_code
from bitfront.trainables import packed
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import places, references_in
from bitfront.trainables.runtime.exports.deployment import deploy
from bitfront.trainables.runtime.exports.description import describe
from bitfront.trainables.runtime.exports.examples import examples_for
from bitfront.trainables.runtime.exports.form import quiet
from bitfront.trainables.task import TrialSpec

MODEL, SERVED = "model", Path(__file__).with_name("served_network.py")
# So many validation examples decide whether the ONNX file is as good as the network.
EXAMPLES = 20
# A tag of runs without an ONNX file: why.
NO_ONNX = "bitfront.no_onnx"


def log_network(client: Any, run: str, file: Path) -> None:
    """Log a packed network to a run. Where it has no ONNX file, a tag says why."""
    with TemporaryDirectory(prefix="bitfront-model-") as folder:
        client.log_artifact(run, str(file))
        network, spec, notes = packed.load(file)
        target = Path(folder) / f"{file.stem}.onnx"
        try:
            examples = examples_for(spec.task, EXAMPLES)
            deploy(network, describe(spec, notes), {"onnx": target}, examples)
            client.log_artifact(run, str(target))
        except UserError as error:
            hint = f"; {error.hint}" if error.hint else ""
            client.set_tag(run, NO_ONNX, f"{error.message}{hint}"[:500])
        save_model(file, spec, network, Path(folder) / MODEL)
        client.log_artifacts(run, str(Path(folder) / MODEL), MODEL)


def save_model(file: Path, spec: TrialSpec, network: Any, folder: Path) -> None:
    """Write a packed network as a model of MLflow, with its signature, an example and the code of
    the user's own that it names."""
    import torch

    info = DATASETS.get(spec.task.dataset)
    kind: Any = np.dtype(np.int64 if info.integers else np.float32)
    example = np.zeros((1, *info.shape), kind)
    with torch.no_grad():
        sizes = network(torch.from_numpy(example)).shape[1:]
    signature = ModelSignature(
        inputs=Schema([TensorSpec(kind, (-1, *info.shape))]),
        outputs=Schema([TensorSpec(np.dtype(np.float32), (-1, *sizes))]),
    )
    with quiet(), TemporaryDirectory(prefix="bitfront-network-") as place:
        network_folder = _with_code(file, spec, Path(place) / "network")
        mlflow.pyfunc.save_model(
            str(folder),
            python_model=str(SERVED),
            artifacts={"network": str(network_folder)},
            signature=signature,
            input_example=example,
            pip_requirements=_requirements(),
        )


def _with_code(file: Path, spec: TrialSpec, folder: Path) -> Path:
    """A folder with a copy of a packed network and the code that it names."""
    folder.mkdir()
    shutil.copy(file, folder)
    names = references_in(spec.model_dump(mode="json"))
    kept_code.keep(folder, places.origins(names))  # what is gone by now was not needed to load it
    return folder


def _requirements() -> list[str]:
    """What serves the model; given, since MLflow would run it in another process to find out."""
    found = []
    for name in ("bitfront", "torch", "torchvision", "numpy"):
        try:
            found.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            continue
    return found
