"""Claims about `task.activations` in a search: what a YAML means that does not say it, and what
happens where binary activations say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfront.cli import main
from bitfront.search.config.checks import activations as check
from bitfront.search.config.load import load_text
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.stored import stored_config
from bitfront.trainables import own_code
from bitfront.trainables.errors import UserError

YAML = """\
task: {{dataset: digits, model: {model}, epochs: 1{more}}}
space: {{method: bnn, plan: {{per: layer, levels: [F, B]}}}}
"""


def yaml(model: str, activations: str | None = None) -> str:
    more = "" if activations is None else f", activations: {activations}"
    return YAML.format(model=model, more=more)


@pytest.mark.parametrize(
    ("model", "said", "meant"),
    [
        ("timm/test_resnet", None, "norm"),
        ("timm/test_resnet", "auto", "norm"),
        ("timm/test_resnet", "keep", "keep"),
        ("timm/test_resnet", "shift", "shift"),
        ("mlp", None, "keep"),
        ("mlp", "norm", "norm"),
    ],
)
def test_networks_of_libraries_are_treated_unless_told_otherwise(model, said, meant) -> None:
    config, space = load_text(yaml(model, said))
    assert config.task.activations == space.task.activations == meant
    again, _ = load_text(config.dump())
    assert again.task.activations == meant


def test_a_stored_search_that_says_nothing_keeps_its_activations(tmp_path: Path) -> None:
    folder = SearchFolder(tmp_path / "old")
    folder.path.mkdir()
    config, _ = load_text(yaml("timm/test_resnet", "keep"), name="old")
    lines = config.dump().splitlines(keepends=True)
    folder.config_file.write_text("".join(x for x in lines if "activations:" not in x))
    again, _ = load_text(stored_config(folder).dump())
    assert again.task.activations == "keep"


def test_a_search_whose_network_ignores_the_image_is_refused() -> None:
    _, space = load_text(yaml("torchvision/squeezenet1_1", "keep").replace("digits", "cifar10"))
    with pytest.raises(UserError, match="its output is the same for every example") as error:
        check.unresponsive(space, read=False)
    assert "features.3.squeeze" in error.value.message
    assert "task.activations: norm" in str(error.value.hint)


def test_layers_that_ignore_the_image_are_named_in_a_warning() -> None:
    _, space = load_text(yaml("torchvision/resnet18", "keep").replace("digits", "cifar10"))
    warning = check.unresponsive(space, read=False)
    assert warning is not None
    assert "layer1.0.conv1" in warning


def test_a_treated_network_and_one_without_binary_inputs_need_no_warning() -> None:
    _, treated = load_text(yaml("timm/test_resnet"))
    assert check.unresponsive(treated) is None
    _, weights = load_text(yaml("timm/test_resnet", "keep").replace("[F, B]", "[F, W]"))
    assert check.unresponsive(weights) is None


OWN = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes, factor=0):
        super().__init__()
        self.factor = factor
        self.layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(2)))
        self.head = nn.Linear(64, num_classes)

    def forward(self, x):
        return self.head(self.layers(x.flatten(1))) * self.factor
"""


@pytest.mark.parametrize(("levels", "reason"), [("W", "no activation is binary"), ("B", "follows")])
def test_a_network_that_ignores_its_input_is_refused_at_every_level(tmp_path, levels, reason):
    (tmp_path / "net.py").write_text(OWN)
    own_code.look_in(tmp_path)
    text = yaml("{name: net.py:Net, factor: 0}").replace("[F, B]", f"[F, {levels}]")
    with pytest.raises(UserError, match=reason) as error:
        check.unresponsive(load_text(text)[1])
    assert "of its last layer" in str(error.value.hint)
    assert check.unresponsive(load_text(text.replace("factor: 0", "factor: 1"))[1]) is None


def test_a_declared_model_is_warned_of_and_never_refused() -> None:
    model = "{name: mlp, depth: 3, width: 24, activation: relu}"
    _, space = load_text(yaml(model))
    assert "get the same binary input" in str(check.unresponsive(space))


def test_validate_refuses_what_is_degenerate_and_nothing_else(tmp_path: Path, capsys) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml("timm/test_resnet", "keep"))
    assert main(["validate", str(file)]) == 2
    assert "its output is the same for every example" in capsys.readouterr().err
    file.write_text(yaml("timm/test_resnet"))
    assert main(["validate", str(file)]) == 0
    assert "warning" not in capsys.readouterr().err


def test_a_space_may_choose_activations_and_bytes_follow() -> None:
    text = yaml("timm/test_resnet").replace(
        "method: bnn,", "method: bnn, activations: [keep, norm],"
    )
    _, space = load_text(text)
    assert {t.activations for t in space.extreme_tasks()} == {"keep", "norm"}
