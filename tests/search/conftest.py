"""Small searches for the tests of `search`: trials that take milliseconds."""

import pytest

from bitfront.search.config.schema import from_source
from bitfront.search.config.source import parse
from bitfront.search.config.space import build_space

TINY = """\
name: tiny
task:
  dataset: digits
  model: {name: mlp, depth: 5, width: 16}
  epochs: 3
  batch_size: 32
  subset: 200
  optimizer: {name: adam, lr: 0.01}
space:
  method: [bnn, bnn++]
  plan: {per: layer, levels: [F, B]}
  optimizer.lr: {float: [0.001, 0.03], log: true}
  bnn++.mu_end: {float: [10, 100], log: true}
search: {sampler: random, trials: 6, seed: 0}
"""


@pytest.fixture
def tiny_yaml():
    return TINY


@pytest.fixture
def make_config():
    """A configuration from the tiny YAML and overrides."""

    def make(*assignments, text=TINY):
        return from_source(parse(text, "tiny.yaml"), list(assignments))

    return make


@pytest.fixture
def make_space(make_config):
    def make(*assignments, text=TINY):
        config = make_config(*assignments, text=text)
        return config, build_space(config)

    return make
