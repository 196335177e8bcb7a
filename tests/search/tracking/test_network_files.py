"""Claims about the network of a final training in MLflow: the packed file, the ONNX file, and a
model that answers as the network does."""

from __future__ import annotations

import shutil

import mlflow
import numpy as np
import pytest
import torch

from bitfront.search.tracking import network_files
from bitfront.search.tracking.extras import _packed
from bitfront.trainables import packed
from bitfront.trainables.errors import UserError
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.network import Network


@pytest.fixture(scope="module")
def network_file(tmp_path_factory):
    torch.manual_seed(0)
    task = Task.model_validate({"dataset": "digits", "model": {"name": "mlp", "width": 16}})
    spec = TrialSpec(task=task, method="bnn", plan="BB")
    path = tmp_path_factory.mktemp("final") / "seed0.safetensors"
    packed.save(Network(spec), spec, path, {})
    return path


class Store:
    """Takes artifacts and tags of one run, as MLflow's client does."""

    def __init__(self, folder):
        self.folder = folder
        self.tags = {}

    def log_artifact(self, _run, file):
        shutil.copy(file, self.folder)

    def log_artifacts(self, _run, folder, name):
        shutil.copytree(folder, self.folder / name)

    def set_tag(self, _run, key, value):
        self.tags[key] = value


def test_the_run_of_a_final_training_has_its_network_and_a_model_that_answers(
    network_file, tmp_path, monkeypatch
):
    def refused(*_):
        raise UserError("--onnx needs onnx", "pip install 'bitfront[deploy]'")

    # Files of ONNX have tests of their own, and take seconds.
    monkeypatch.setattr(network_files, "deploy", refused)
    store = Store(tmp_path)
    network_files.log_network(store, "run", network_file)
    assert {file.name for file in tmp_path.iterdir()} == {"seed0.safetensors", "model"}
    assert store.tags[network_files.NO_ONNX].endswith("pip install 'bitfront[deploy]'")
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert model.metadata.signature.inputs.inputs[0].shape == (-1, 1, 8, 8)
    x = np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32)
    network, _, _ = packed.load(network_file)
    with torch.no_grad():
        assert np.array_equal(model.predict(x), network(torch.from_numpy(x)).numpy())


def test_only_packed_networks_are_sent_to_a_server(network_file, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("password")
    link = tmp_path / "link.safetensors"
    link.symlink_to(network_file)
    assert [_packed(file) for file in (network_file, secret, link, tmp_path)] == [
        network_file, None, None, None,
    ]  # fmt: skip
