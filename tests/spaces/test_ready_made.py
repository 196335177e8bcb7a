"""Every YAML that comes with bitfront is valid, carries the rows of its paper and, rehearsed with
made-up accuracies, runs to its end."""

import pytest
import yaml

from bitfront.search.config.load import load
from bitfront.search.session.rehearsal import rehearse
from bitfront.search.session.selection import needed
from bitfront.spaces.ready_made import HERE, search_file, searches
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.errors import UserError
from bitfront.trainables.selectors import SelectionSpec
from bitfront.trainables.training.distillation import read_recipe

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
    and every row of a paper is answered, or says why not."""
    config, space = load(searches()[name], [f"task.data_dir={tmp_path / 'no data'}"])
    told = rehearse(config, space)
    assert told.complete + told.stopped + told.failed == told.trials > 0
    assert told.front > 0
    if told.exhausted:
        # How many plans of selectors are the same is known when they have looked at networks.
        assert told.made_up_selectors
        assert told.trials - told.repeats == told.distinct
        assert told.trials > 0.65 * told.asked
    else:
        assert told.trials == told.asked
    assert [row for row in told.unanswered if not row.stated] == []
    assert list(tmp_path.iterdir()) == []


def test_the_main_search_of_mixbin_ends_when_all_its_plans_are_tried():
    """It ended with a traceback at trial 40: a selector among nine could not be drawn at random."""
    config, space = load(searches()["mixbin-cresnet20-cifar100"], ["paper.seeds=0"])
    told = rehearse(config, space)
    assert told.exhausted
    assert told.trials == told.distinct < told.asked
    assert {"slimming", "hawq", "mixbin-grad-paper"} < set(told.made_up_selectors)


def test_dense_networks_that_meet_attacks_answer_their_rows():
    told = rehearse(*load(searches()["robust-rn34-dense"]))
    assert (told.rows, told.unanswered) == (22, [])


@pytest.mark.parametrize("path", sorted((HERE / "teachers").glob("*.yaml")), ids=lambda p: p.stem)
def test_the_plan_of_a_ready_made_teacher_fits_its_network(path):
    spec = read_recipe(path)
    assert len(spec.plan) == len(task_cost_table(spec.task).plan_layers)
    assert set(spec.plan) == {"F"}


# Cells of ProxConnect++ that have a number of their own, by table: those that repeat an earlier one
# in the same setting do not count.
PRINTED = {
    "pcpp-resnet20-cifar10": 1 + 21,  # full precision; BW, BWA, BWAA of seven methods
    "pcpp-resnet20-cifar10-e2e": 2 + 21,  # full precision has a deviation beside BW and beside BWA
    "pcpp-resnet50-imagenet": 1 + 21,
    "pcpp-resnet50-imagenet-e2e": 2 + 21,
    "pcpp-deit-t-cifar10": 2 + 21 + 6,  # two numbers of full precision; Table 6
    "pcpp-deit-t-cifar100": 1 + 21 + 6,
    "pcpp-deit-t-imagenet": 2 + 14 + 6 + 1,  # BC has two numbers
    "pcpp-deit-s-cifar10": 2 + 7 + 6,
    "pcpp-deit-s-cifar100": 1 + 7 + 6,
    "pcpp-deit-s-imagenet": 2 + 7 + 6,
    "pcpp-deit-b-cifar10": 1 + 7,
    "pcpp-deit-b-cifar100": 1 + 7,
    "pcpp-deit-b-imagenet": 1 + 7,
    "pcpp-vit-b-cifar10": 1 + 7,
    "pcpp-vit-b-cifar100": 1 + 7,
    "pcpp-vit-b-imagenet": 1 + 7,
    "pcpp-vit-b-protocols": 10,
    "pcpp-protocols": 10,
    "pcpp-swin-t-imagenet": 2,
    "pcpp-nest-t-imagenet": 2,
    "pcpp-accumulators-cifar10": 3,
    "pcpp-ptb-cifar10": 2,
    "pcpp-ptb-deit-t": 2,
    "pcpp-vit-b-blocks": 0,  # Figure 3 has colours
}


def test_all_printed_numbers_of_proxconnect_are_carried():
    found = {}
    for name, path in searches().items():
        paper = yaml.safe_load(path.read_text()).get("paper")
        if name.startswith("pcpp-") and paper is not None:
            found[name] = sum("value" in row for row in paper["rows"])
    assert found == PRINTED


# The appendix prints no numbers of tracking, ImageNet and iterative selection.
WITHOUT_ROWS = ("mixbin-siamfc", "mixbin-iterative", "mixbin-resnet18-imagenet")
MIXBIN = [
    name
    for name in sorted(searches())
    if name.startswith("mixbin-") and not name.startswith(WITHOUT_ROWS)
]


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
