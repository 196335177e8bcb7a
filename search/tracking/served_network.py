"""A packed network as a model of MLflow. MLflow copies this file into the model and runs it there:
`mlflow.pyfunc.load_model`, `mlflow models serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import torch
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from bitfront.search import kept_code
from bitfront.trainables import packed
from bitfront.trainables.data import DATASETS
from bitfront.trainables.own_code.trusted import trusting
from bitfront.trainables.runtime.network import an_example, fast


class PackedNetwork(PythonModel):
    """Examples as the network takes them, normalised, to its outputs."""

    def load_context(self, context: PythonModelContext) -> None:
        folder = Path(context.artifacts["network"])
        (file,) = folder.glob("*.safetensors")
        kept_code.look(folder)
        # Whoever loads a model of MLflow runs the code in it: that of the network is no more. It
        # has the hash that the packed file names.
        with trusting(True):
            network, spec, _ = packed.load(file)
        self.info = DATASETS.get(spec.task.dataset)
        self.network = fast(network.requires_grad_(False), an_example(self.info)).network

    # MLflow reads the types of an annotated argument as a signature.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """The outputs for a batch, also where it came as lists or flat."""
        given = np.asarray(model_input, np.int64 if self.info.integers else np.float32)
        x = torch.from_numpy(given.reshape(-1, *self.info.shape))
        with torch.no_grad():
            found: Any = self.network(x)
        return found.numpy()


mlflow.models.set_model(PackedNetwork())
