"""A YAML that names code of the user's own: methods, selectors, samplers, metrics and costs."""

import random

import pytest
import yaml

from bitfront.search.config.bounds import cost_bounds, reference_point
from bitfront.search.config.errors import ConfigError
from bitfront.search.config.load import load, load_text
from bitfront.search.samplers.registry import SAMPLERS
from bitfront.trainables import own_code
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import METHODS
from bitfront.trainables.own_code import entry_points
from bitfront.trainables.own_code.entry_points import Named

CODE = '''
import torch


class Triangle:
    """F = sign, B = a triangle."""

    name = "tri"

    def forward(w, mu_end=2.0):
        return torch.where(w >= 0, 1.0, -1.0)

    def backward(w, mu_end=2.0):
        return (1 - w.abs()).clamp_min(0) * mu_end


def soft(w, slope=3.0):
    return torch.tanh(slope * w)


def choose(layers, table, reverse=False):
    return layers[::-1] if reverse else layers


def sampler(seed):
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


def f1(output, target):
    return (output.argmax(1) == target).float().mean()


f1.share = True


def error(output, target):
    return (output.argmax(1) != target).float().mean()


def cycles(layer):
    """cycles of the accelerator"""
    return layer.macs / 4 if layer.letter == "B" else layer.macs


def broken(w):
    return w.sum()


def nameless(w, needed):
    return w


def answers(w):
    return w > 0


def scaled(w, scale=2.0):
    return torch.tanh(scale * w)


def not_a_number(w):
    return w / 0 * 0


def negative(layer):
    return -1


def unlucky(layer):
    return 1 / 0
'''
YAML = """\
name: own
task: {dataset: digits, model: {name: mlp, depth: 5, width: 8}, epochs: 2, subset: 100}
space:
  method: [bnn, mine.py:Triangle]
  plan: {per: layer, levels: [F, B]}
  tri.mu_end: {float: [1, 3]}
search: {sampler: random, trials: 2}
tracking: {enabled: false}
"""


@pytest.fixture
def folder(tmp_path):
    code = tmp_path / "project"
    code.mkdir()
    (code / "mine.py").write_text(CODE)
    (code / "own.yaml").write_text(YAML)
    return code


def loaded(folder, *assignments):
    return load(folder / "own.yaml", assignments)


def method_of(config):
    return config.space["method"][-1]


def test_a_method_is_stored_with_its_hash_and_its_keys_with_it(folder):
    config, space = loaded(folder)
    name = method_of(config)
    assert name.startswith("mine.py:Triangle@")
    assert f"{name}.mu_end" in config.space
    assert list(space.method_params[name]) == ["mu_end"]
    points = {space.random_point(random.Random(i)).method for i in range(20)}
    assert points == {"bnn", name}


@pytest.mark.parametrize("key", ["tri.mu_end", "mine.py:Triangle.mu_end"])
def test_a_key_names_a_method_by_reference_or_by_its_own_name(folder, key):
    (folder / "own.yaml").write_text(YAML.replace("tri.mu_end", key))
    config, _ = loaded(folder)
    assert f"{method_of(config)}.mu_end" in config.space


def test_a_stored_search_is_read_again_as_it_is(folder):
    config, _ = loaded(folder)
    with own_code.received():
        again, _ = load_text(config.dump())
    assert again == config


def test_settling_a_received_search_trusts_nothing(folder):
    own_code.look_in(folder)
    with own_code.received(), pytest.raises(UserError, match="that you have not run before"):
        load_text(YAML)


def test_a_wrong_key_of_a_method_is_named_with_its_line_and_without_hashes(folder):
    (folder / "own.yaml").write_text(YAML.replace("tri.mu_end", "tri.mu_ends"))
    with pytest.raises(ConfigError) as error:
        loaded(folder)
    assert "own.yaml:6 space.mine.py:Triangle.mu_ends: unknown key" in str(error.value)
    assert "@" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine.py:Nothing", "has no 'Nothing'"),
        ("other.py:Triangle", "other.py: no such file"),
        ("mine.py:broken", "a quantizer returns a tensor of the shape it is given"),
        ("mine.py:nameless", "its argument 'needed' has no default"),
        ("mine.py:torch", "is no method: module"),
        ("mine.py:answers", "truth values of weights"),
        ("mine.py:scaled", "its argument 'scale' is called like a parameter that every"),
        ("mine.py:not_a_number", "makes NaN or infinity"),
    ],
)
def test_what_is_wrong_with_a_method_is_said_before_a_trial(folder, name, message):
    text = YAML.replace("mine.py:Triangle", name).replace("  tri.mu_end: {float: [1, 3]}\n", "")
    (folder / "own.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        loaded(folder)
    assert "own.yaml:4 space.method" in str(error.value)


def test_an_argument_without_a_range_cannot_be_searched_by_default(folder):
    with pytest.raises(ConfigError, match="give the range to search"):
        loaded(folder, "space.tri.mu_end=search")


def test_a_selector_orders_layers(folder):
    plan = "{selector: mine.py:choose, budget: 80, params: {reverse: true}}"
    config, space = loaded(folder, f"space.plan={plan}")
    assert config.space["plan"]["selector"].startswith("mine.py:choose@")
    spec = space.random_point(random.Random(1))
    assert spec.plan.startswith("F")
    assert spec.plan.endswith("B")


def test_a_sampler_is_made_for_every_ask(folder):
    config, _ = loaded(folder, "search.sampler=mine.py:sampler")
    made = SAMPLERS.get(config.search.sampler).make(3, None)
    assert type(made).__name__ == "RandomSampler"


def test_a_function_that_makes_no_sampler_is_refused(folder):
    (folder / "mine.py").write_text(CODE + "\n\ndef nothing(seed): return 3\n")
    config, _ = loaded(folder, "search.sampler=mine.py:nothing")
    with pytest.raises(UserError, match="which is no sampler"):
        SAMPLERS.get(config.search.sampler).make(3, None)


def test_a_metric_is_an_objective_by_its_own_name(folder):
    config, space = loaded(
        folder, "task.metrics=[mine.py:f1]", "objectives={val_f1: max, flops: min}"
    )
    assert config.task.metrics[0].startswith("mine.py:f1@")
    assert config.task.metrics[0].endswith(";max;share")
    assert config.quality.name == "val_f1"
    assert config.quality.share
    assert reference_point(config, space)[0] == 0.0


def test_the_mode_of_an_objective_says_what_is_better(folder):
    config, space = loaded(folder, "task.metrics=[mine.py:error]", "objectives={val_error: min}")
    assert not config.quality.maximize
    assert reference_point(config, space) == [1.0]


@pytest.mark.parametrize(
    ("metric", "message"),
    [("mine.py:nothing", "has no 'nothing'"), ("accuracy", "is no metric")],
)
def test_a_metric_that_is_none_is_named(folder, metric, message):
    with pytest.raises(ConfigError, match=message):
        loaded(folder, f"task.metrics=[{metric}]")


def test_two_metrics_of_one_name_are_refused(folder):
    (folder / "mine.py").write_text(CODE + "\n\ndef accuracy(o, t): return 0\n")
    with pytest.raises(ConfigError, match="two metrics val_accuracy"):
        loaded(folder, "task.metrics=[mine.py:accuracy]")


def test_a_cost_is_an_objective_and_a_limit(folder):
    config, space = loaded(
        folder,
        "costs=[mine.py:cycles]",
        "objectives={val_accuracy: max, cycles: min}",
        "limits={cycles: 100000}",
    )
    assert list(config.objectives) == ["val_accuracy", "cycles"]
    spec = space.random_point(random.Random(0))
    full, binary = (
        space.costs(spec.model_copy(update={"plan": letter * len(spec.plan)})) for letter in "FB"
    )
    assert binary["cycles"] < full["cycles"]
    low, high = cost_bounds(space)["cycles"]
    assert (low, high) == (binary["cycles"], full["cycles"])


def test_a_limit_on_a_cost_that_no_point_satisfies_is_said(folder):
    with pytest.raises(ConfigError, match="no point of the space has cycles <= 1"):
        loaded(folder, "costs=[mine.py:cycles]", "limits={cycles: 1}")


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ("mine.py:negative", "-1 is no cost of layer"),
        ("mine.py:unlucky", r"mine\.py:\d+: cannot price layer .*ZeroDivisionError"),
        ("flops", "is counted anyway"),
        ("mine.py:f1", "is no cost"),
    ],
)
def test_a_cost_that_is_none_is_named(folder, cost, message):
    with pytest.raises(UserError, match=message):
        loaded(folder, f"costs=[{cost}]", "limits={flops: 100000000}")


def test_a_name_that_a_package_declares_is_its_code(folder, monkeypatch):
    own_code.look_in(folder)
    (folder / "packaged.py").write_text(CODE + DATA)
    declared = [
        ("method", "fancy", "Triangle"),
        ("dataset", "waves", "load"),
        ("metric", "best", "f1"),
    ]
    found = tuple(Named(kind, n, f"packaged:{v}", "fancy") for kind, n, v in declared), ()
    monkeypatch.setattr(entry_points, "declared", lambda: found)
    text = YAML.replace("mine.py:Triangle", "fancy").replace("tri.mu_end", "fancy.mu_end")
    (folder / "own.yaml").write_text(text)
    assert "waves" in DATASETS
    keys = ["task.dataset=waves", "task.subset=null", "task.metrics=[best]", "task.data.n=50"]
    config, _ = loaded(folder, *keys, "objectives={val_f1: max, flops: min}")
    assert config.task.dataset.startswith("packaged:load@")
    assert ";n=50/0/0" in config.task.dataset
    assert method_of(config).startswith("packaged:Triangle@")
    assert f"{method_of(config)}.mu_end" in config.space
    assert "fancy" in METHODS


def test_ids_of_trials_without_metrics_of_their_own_stay(folder):
    config, space = loaded(folder)
    spec = space.random_point(random.Random(0))
    with_metric = spec.task.model_copy(update={"metrics": ["a.py:b@123456789012;max"]})
    assert spec.fingerprint() != spec.model_copy(update={"task": with_metric}).fingerprint()
    assert "metrics" in yaml.safe_load(config.dump())["task"]


DATA = """
import numpy as np


def load(n=60):
    x = np.random.default_rng(0).standard_normal((n, 6)).astype("float32")
    return x, (x[:, 0] > 0).astype(int)
"""


def test_a_metric_is_for_data_of_ones_own_too(folder):
    (folder / "data.py").write_text(DATA)
    keys = ["task.dataset=data.py:load", "task.subset=null", "task.metrics=[mine.py:f1]"]
    config, _ = loaded(folder, *keys, "objectives={val_f1: max, flops: min}")
    assert "val_f1" in [metric.name for metric in config.kind.metrics]


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["task.metrics=[mine.py:unlucky_metric]"],
         r"task\.metrics\.0: .*mine\.py:\d+: cannot be measured: ZeroDivisionError"),
        (["costs=[mine.py:cycles, mine.py:unlucky]"],
         r"costs\.1: .*mine\.py:\d+: cannot price layer .*: ZeroDivisionError"),
        (["space.plan={selector: mine.py:undecided, budget: 60}"],
         r"space\.plan: .*mine\.py:\d+: cannot choose: ValueError: hard to say"),
        (["task.model=net.py"], r"unknown model 'net\.py'.*\n  .*class or function: net\.py:NAME"),
        (["task.model=nets.Net"], r"unknown model 'nets\.Net'.*\n  .*written nets:Net"),
        (["task.dataset=data.py"], r"unknown dataset 'data\.py'.*\n  .*data\.py:NAME"),
    ],
)  # fmt: skip
def test_what_fails_in_code_is_said_at_its_key(folder, assignments, message):
    more = "\n\ndef unlucky_metric(output, target):\n    return 1 / 0\n"
    more += "\n\ndef undecided(layers):\n    raise ValueError('hard to say')\n"
    (folder / "mine.py").write_text(CODE + more)
    with pytest.raises(ConfigError, match=message):
        loaded(folder, *assignments)
