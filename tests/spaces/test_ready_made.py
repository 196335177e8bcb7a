"""Every YAML that comes with bitfront is valid, carries the rows of its paper and, rehearsed with
made-up accuracies, runs to its end."""

import pytest

from bitfront.search.config.load import load
from bitfront.search.session.rehearsal import rehearse
from bitfront.search.session.selection import needed
from bitfront.spaces.ready_made import search_file, searches
from bitfront.trainables.errors import UserError
from bitfront.trainables.selectors import SelectionSpec

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", sorted(searches()))
def test_every_ready_made_search_is_valid(name):
    config, _ = load(search_file(name))
    assert config.name == name


def test_an_unknown_ready_made_search_gets_a_suggestion():
    with pytest.raises(UserError, match="did you mean 'quickstart'"):
        search_file("quickstrat")


@pytest.mark.parametrize("name", sorted(searches()))
def test_every_ready_made_search_runs_to_its_end(name, tmp_path):
    """None needs its data or a network that was trained, none asks for more trials than there are,
    and no row of a paper asks for what its space cannot draw."""
    config, space = load(searches()[name], [f"task.data_dir={tmp_path / 'no data'}"])
    told = rehearse(config, space)
    assert told.complete + told.stopped + told.failed == told.trials > 0
    assert told.front > 0
    if told.exhausted:
        # How many plans of selectors are the same is known when they have looked at networks.
        assert told.made_up_selectors
        assert told.trials == told.distinct > 0.7 * told.asked
    else:
        assert told.trials == told.asked
    assert [row for row in told.unanswered if "no point of the space" in row.why] == []
    assert [row for row in told.unanswered if "trial is complete" in row.why] == []
    assert list(tmp_path.iterdir()) == []


def test_the_main_search_of_mixbin_ends_when_all_its_plans_are_tried():
    """It ended with a traceback at trial 40: a selector among nine could not be drawn at random."""
    config, space = load(searches()["mixbin-cresnet20-cifar100"], ["search.trials=63"])
    told = rehearse(config, space)
    assert told.exhausted
    assert told.trials == told.distinct <= 47
    assert "pseudo-random" in told.made_up_selectors


def test_dense_networks_that_meet_attacks_answer_their_rows():
    told = rehearse(*load(searches()["robust-rn34-dense"]))
    assert (told.rows, told.unanswered) == (4, [])


# The tracking search has no rows: the paper's numbers are not to be had.
MIXBIN = [n for n in sorted(searches()) if n.startswith("mixbin-") and n != "mixbin-siamfc"]


@pytest.mark.parametrize("name", MIXBIN)
def test_every_search_of_mixbin_is_valid_and_carries_rows(name):
    config, _ = load(searches()[name])
    assert config.name == name
    assert config.paper is not None
    assert "activation" in config.task.model.params or "model.activation" in config.space


def test_the_recipe_of_the_paper_is_the_default_of_its_searches():
    task = load(searches()["mixbin-cresnet20-cifar100"])[0].task
    assert (task.epochs, task.batch_size, task.optimizer.lr) == (160, 128, 0.1)
    assert (task.optimizer.name, task.optimizer.weight_decay) == ("sgd", 1e-4)
    assert (task.schedule.shape, task.schedule.at) == ("steps", [0.5, 0.75])
    assert task.loss.label_smoothing == 0.01


def test_transfer_selects_on_one_dataset_and_trains_on_another():
    config, space = load(searches()["mixbin-transfer"])
    specs = needed(config, space)
    assert {s.task.dataset for s in specs} == {"cifar10"}
    assert config.task.dataset == "cifar100"
    assert all(isinstance(s, SelectionSpec) for s in specs)
