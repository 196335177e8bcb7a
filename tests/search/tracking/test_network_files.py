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
from bitfront.trainables import own_code, packed
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import places
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


NET = """
from torch import nn
import parts_of_served

class Net(nn.Sequential):
    def __init__(self, classes, width=16):
        super().__init__(nn.Flatten(), *parts_of_served.body(width), nn.Linear(width, classes))
"""
PARTS = """
from torch import nn

def body(width):
    return nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
"""


def test_a_model_brings_the_code_of_a_network_of_ones_own(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "served_net.py").write_text(NET)
    (code / "parts_of_served.py").write_text(PARTS)
    model = {"name": own_code.settle("served_net.py:Net", code), "width": 8}
    task = Task.model_validate({"dataset": "digits", "model": model})
    spec = TrialSpec(task=task, method="bnn", plan="B")
    file = tmp_path / "seed0.safetensors"
    packed.save(Network(spec), spec, file, {})
    network_files.save_model(file, spec, packed.load(file)[0], tmp_path / "model")
    # Gone is all that was looked at so far: the code, and the model where it was tried.
    shutil.rmtree(code)
    elsewhere = shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"served_net.py: no such file"):
        places.find(own_code.parse(model["name"]))
    served = mlflow.pyfunc.load_model(str(elsewhere))
    assert served.predict(np.zeros((2, 1, 8, 8), np.float32)).shape == (2, 10)
    assert places.find(own_code.parse(model["name"])).path.is_relative_to(elsewhere)


def test_only_packed_networks_are_sent_to_a_server(network_file, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("password")
    link = tmp_path / "link.safetensors"
    link.symlink_to(network_file)
    assert [_packed(file) for file in (network_file, secret, link, tmp_path)] == [
        network_file, None, None, None,
    ]  # fmt: skip
