"""Claims about searches over pruned and robust networks: mistakes are found before anything
starts, and three objectives are kept apart."""

import json

import pytest

from bitfront.cli import main
from bitfront.search.config.errors import ConfigError
from bitfront.search.config.load import load_text
from bitfront.spaces.costs import costs_of

YAML = """\
name: robust
task:
  dataset: digits
  model: {name: rn-narrow, width: 8, stages: 2, lbn: true, affine: false}
  epochs: 2
  binarize: all
  attack: {eps: 0.1, train: pgd, steps: 2, examples: 50}
space:
  method: edge-popup
  plan: W
  edge-popup.rate: [0.5, 0.9]
  edge-popup.p: {float: [0, 1]}
objectives: {val_robust_pgd20: max, val_accuracy: max, flops: min}
search: {sampler: random, trials: 3}
"""


def load(*assignments, text=YAML):
    return load_text(text, "robust.yaml", assignments)[0]


def test_what_is_optimized_is_measured():
    config = load()
    assert config.task.attack.evaluate == ["pgd20"]
    assert config.quality.name == "val_robust_pgd20"
    assert "PGD-20" in config.quality.label


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("task.attack={train: pgd}", "eps is missing: how far a pixel"),
        ("task.attack={}", "task.attack: eps is missing"),
        ("space.edge-popup\\.rate=1.0", "edge-popup.rate: 1.0 is outside 0..0.999999"),
        ("task.dataset=moons", "takes images"),
        ("task.attack.train=pdg", "did you mean 'pgd'"),
        ("task.attack.evaluate=[pgd]", "did you mean"),
        ("task.pretrain=1", "edge-popup prunes random weights"),
        ("objectives={val_robust_pgd: max, flops: min}", "did you mean 'val_robust_pgd"),
    ],
)
def test_each_mistake_is_named(assignment, message):
    key, _, value = assignment.partition("=")
    text = YAML
    if "\\." in key:
        text = text.replace("edge-popup.rate: [0.5, 0.9]", f"edge-popup.rate: {value}")
        with pytest.raises(ConfigError) as caught:
            load(text=text)
    else:
        with pytest.raises(ConfigError) as caught:
            load(assignment)
    assert message in str(caught.value)


def test_a_layer_left_with_nothing_is_found():
    text = YAML.replace("[0.5, 0.9]", "[0.5, 0.9999]")
    with pytest.raises(ConfigError, match=r"space\.edge-popup\.rate: .* leaves nothing of layer"):
        load(text=text)


def test_methods_that_train_against_attacks_need_an_eps():
    text = YAML.replace("method: edge-popup", "method: at").replace(
        "  attack: {eps: 0.1, train: pgd, steps: 2, examples: 50}\n", ""
    )
    text = "\n".join(line for line in text.splitlines() if "edge-popup." not in line)
    text = text.replace("val_robust_pgd20: max, ", "")
    with pytest.raises(ConfigError, match=r"task\.attack\.eps: is missing.*at trains against"):
        load(text=text)


def test_layers_whose_costs_hang_together_are_not_for_the_sampler_that_adds_them_up():
    assert load("space.plan={per: layer, levels: [F, W]}").search.sampler == "random"
    with pytest.raises(ConfigError, match="free-cost adds up the costs of layers"):
        load("space.plan={per: layer, levels: [F, W]}", "search.sampler=free-cost")


def test_autoattack_and_early_stopping_exclude_each_other():
    with pytest.raises(ConfigError, match="autoattack is measured at their end"):
        load("objectives={val_robust_autoattack: max, flops: min}", "search.early_stopping=true")


def test_bounds_of_costs_hold_for_every_rate_and_exponent():
    import random

    from bitfront.search.config.bounds import cost_bounds

    _, space = load_text(YAML)
    bounds = cost_bounds(space)
    rng = random.Random(0)
    for _ in range(40):
        for name, value in costs_of(space.random_point(rng)).items():
            low, high = bounds[name]
            # Bytes go up and down with the exponent as masks change their form.
            assert low * 0.99 <= value <= high * 1.01, name


def test_the_cost_verb_prices_pruned_networks(capsys):
    words = ["cost", "rn34", "--plan", "W", "--binarize", "all", "--classes", "10"]
    assert main([*words, "--prune", "0.99", "--exponent", "0.1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in told["layers"]}
    assert rows["stem.conv"]["kept"] == rows["stem.conv"]["weights"] == 1728
    assert rows["classifier"]["kept"] == 3966
    assert main([*words, "--prune", "0.99"]) == 0
    assert "weights kept" in capsys.readouterr().out
