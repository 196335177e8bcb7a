"""Claims about deploying: a file is kept where it predicts what torch does, and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bitfront.cli import main
from bitfront.trainables import packed
from bitfront.trainables.data import DATASETS
from bitfront.trainables.data.datasets import class_names
from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.exports.base import FORMATS, target_of
from bitfront.trainables.runtime.exports.deployment import deploy
from bitfront.trainables.runtime.exports.description import describe
from bitfront.trainables.runtime.exports.examples import examples_for, random_examples
from bitfront.trainables.runtime.exports.form import traced
from bitfront.trainables.task import Task
from bitfront.trainables.training.parts import search_data

PROGRAM = FORMATS.get("torch-export")


@pytest.mark.parametrize("name", ["levels", "pruned"])
def test_a_program_of_torch_export_gives_equal_outputs(deployed, name):
    made = deployed(name, "torch-export")
    assert (made.examples, made.difference) == (8, 0.0)


def test_a_file_that_predicts_something_else_is_an_error_and_not_left_behind(
    packed_file, tmp_path, monkeypatch
):
    @contextmanager
    def wrong(_path):
        yield lambda x: torch.eye(10)[torch.arange(len(x)) % 10]

    monkeypatch.setattr(type(PROGRAM), "running", lambda self, path: wrong(path))
    network, spec, notes = packed.load(packed_file("pruned"))
    target = tmp_path / "net.pt2"
    examples = examples_for(spec.task, 20)
    with pytest.raises(UserError, match=r"another class for \d+ of 20 examples"):
        deploy(network, describe(spec, notes), {"torch-export": target}, examples)
    assert list(tmp_path.iterdir()) == []


def test_examples_are_those_of_the_validation_part():
    task = Task.model_validate({"dataset": "digits", "model": {"name": "mlp"}, "subset": 300})
    found = examples_for(task, 12)
    assert found.what == "validation examples"
    validation: Any = search_data(task)[1]
    assert torch.equal(found.x, validation.first(12).x)


def test_without_data_examples_are_random_and_it_is_said_why():
    task = Task.model_validate({"dataset": "cifar10", "model": {"name": "mlp"}})
    found = examples_for(task, 3, data_dir="/nowhere")
    assert (found.what, tuple(found.x.shape)) == ("random inputs", (3, 3, 32, 32))
    assert "/nowhere" in found.why


def test_a_network_that_cannot_be_traced_is_refused_by_the_name_of_its_layer():
    class Branch(nn.Module):
        def forward(self, x):
            return x if float(x.sum()) > 0 else -x

    network = nn.Sequential(nn.Linear(4, 4), Branch())
    with pytest.raises(UserError, match=r"^1 cannot be traced"):
        traced(network, torch.randn(2, 4))


def test_a_description_says_how_an_image_becomes_an_input(packed_file):
    _, spec, notes = packed.load(packed_file("plain"))
    about = describe(spec, notes)
    info = DATASETS.get("digits")
    assert (about.input_shape, about.mean, about.std) == (info.shape, info.mean, info.std)
    assert about.class_names == [*"0123456789"]
    assert about.measured == {"test_accuracy": 0.5}


def test_names_of_classes_are_in_the_order_of_labels(tmp_path):
    assert class_names("cifar10")[3] == "cat"
    assert class_names("moons") == []
    for name in ("wren", "owl"):
        (tmp_path / "birds" / "train" / name).mkdir(parents=True)
    settled = DATASETS.settle("folder:birds:8", tmp_path)
    assert class_names(settled, tmp_path) == ["owl", "wren"]
    assert class_names(settled, tmp_path / "elsewhere") == []


def test_the_verb_says_how_well_files_agree_and_overwrites_nothing(packed_file, tmp_path, capsys):
    out = tmp_path / "net.pt2"
    command = ["deploy", str(packed_file("pruned")), "--torch-export", str(out), "--json"]
    assert main([*command, "--examples", "5"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["examples"] == "validation examples"
    assert (told["files"][0]["examples"], told["files"][0]["largest_difference"]) == (5, 0.0)
    assert main(command) == 2
    assert "is there; it is not overwritten" in capsys.readouterr().err
    assert main(["deploy", str(packed_file("pruned"))]) == 2
    assert "which file? --" in capsys.readouterr().err


def test_a_file_without_a_name_goes_beside_the_packed_one(tmp_path):
    assert target_of("onnx", tmp_path / "seed0.safetensors") == tmp_path / "seed0.onnx"


@pytest.mark.parametrize(("name", "ending"), [("openvino", ".xml"), ("torch-export", ".pt2")])
def test_a_name_that_others_refuse_to_write_is_one_line(name, ending, tmp_path, monkeypatch):
    monkeypatch.setattr("bitfront.trainables.runtime.exports.base.find_spec", lambda _: True)
    examples = random_examples(DATASETS.get("digits"), 2)
    with pytest.raises(UserError, match=rf"^--{name} .*net: its name must end in \{ending}"):
        deploy(nn.Identity(), None, {name: tmp_path / "net"}, examples)


def test_formats_are_listed_where_no_extra_is_installed():
    """In a process of its own, in which the packages of all extras cannot be imported."""
    extras = ["numba", "onnx", "onnxruntime", "onnxscript", "openvino"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({extras}))\n"
        "from bitfront.trainables.runtime.exports.base import FORMATS\n"
        "print(*FORMATS.names())"
    )
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {"c", "onnx", "openvino", "qonnx", "torch-export"} <= set(done.stdout.split())


def test_a_missing_extra_is_one_line(monkeypatch, packed_file, tmp_path):
    monkeypatch.setattr("bitfront.trainables.runtime.exports.base.find_spec", lambda name: None)
    network, spec, notes = packed.load(packed_file("pruned"))
    with pytest.raises(UserError) as caught:
        deploy(
            network,
            describe(spec, notes),
            {"onnx": tmp_path / "net.onnx"},
            random_examples(DATASETS.get("digits"), 2),
        )
    assert caught.value.hint == "pip install 'bitfront[deploy]'"
