"""A search for something other than accuracy goes the whole way: objectives, reference, front,
figures, recipe, final training, replay."""

import json
from functools import partial
from typing import Any

import pytest

from bitfront.dashboards.search_files import write_figures
from bitfront.search.config.bounds import reference_point
from bitfront.search.config.errors import ConfigError
from bitfront.search.config.load import load_text
from bitfront.search.config.space import build_space
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.recipes.export import recipe_of
from bitfront.search.recipes.final_training import train_recipe
from bitfront.search.recipes.recipe import load_recipe, save_recipe
from bitfront.search.recipes.replay import replay_trial
from bitfront.search.results.paper import PaperComparison
from bitfront.search.results.results import Results
from bitfront.search.session.selection import needed
from bitfront.search.session.session import Session
from bitfront.terminal.papers import paper_text
from bitfront.terminal.progress import Progress
from bitfront.terminal.summary import front_summary
from bitfront.trainables import packed
from bitfront.trainables.files import write_atomically
from bitfront.trainables.selectors import select
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data

TRACKING = """\
name: pursuit
task:
  dataset: moving-shapes
  model: {name: siamfc, width: 2, blocks: 1}
  epochs: 1
  batch_size: 10
  subset: 24
  val_fraction: 0.2
space: {method: bnn, plan: {per: stage}}
search: {sampler: random, trials: 3}
"""

PAPER = """\
paper:
  title: A paper, 2023
  table: Table 7
  dataset: OTB
  model: siamfc
  metric: val_auc
  rows: [{label: one, value: 0.6, where: {plan: B}}]
"""


def config_of(text=TRACKING, *assignments):
    return load_text(text, "pursuit.yaml", assignments)[0]


def test_the_kind_of_task_decides_what_is_optimized_by_default():
    config = config_of()
    assert config.objectives == {"val_auc": "max", "flops": "min"}
    reference = reference_point(config, build_space(config))
    assert reference[0] == 0.0
    assert reference[1] > 0
    assert config.quality.name == "val_auc"
    assert config_of(TRACKING, "objectives={val_precision: max}").quality.name == "val_precision"


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("objectives={val_accuracy: max}", "objectives.val_accuracy: unknown key, did you mean"),
        ("objectives={flops: min}", "name one of val_auc, val_precision, val_loss as well"),
        (
            "task.model=cresnet20",
            "cresnet20 is for classification, moving-shapes for object-tracking",
        ),
        ("task.dataset=digits", "siamfc is for object-tracking, digits for classification"),
        ("task.augmentation=crop-flip", "crop-flip is for single images"),
        ("task.dataset=sequences:mine:8", "a search region of at least 31 pixels"),
        (
            "task.loss={distill: {kind: logits, teacher: stage}}",
            "a teacher is for classification, moving-shapes is object-tracking",
        ),
        (
            "task.pretrain={epochs: 1, binary_epochs: 1, binary_dataset: cifar10}",
            "cifar10 is for classification, moving-shapes for object-tracking",
        ),
        (
            "space.plan={selector: mixbin-grad, budget: 50, trained_on: {dataset: cifar10}}",
            "trained_on.dataset: cifar10 is for classification, not object-tracking",
        ),
        ("paper.metric=val_accuracy", "'val_accuracy' is no metric, "),
        ("paper.rows=[{label: one, value: 60}]", "val_auc is a fraction, got 60"),
    ],
)
def test_what_does_not_belong_to_the_kind_is_refused(assignment, message):
    with pytest.raises(ConfigError, match=message):
        config_of(TRACKING + PAPER * assignment.startswith("paper"), assignment)


def test_a_selector_and_pretraining_work_for_a_tracker():
    config = config_of(
        TRACKING, "space.plan={selector: mixbin-grad, budget: 50}", "task.pretrain=1"
    )
    (spec,) = needed(config, build_space(config))
    found = select(spec)
    assert sorted(found.order) == list(range(6))
    assert all(score > 0 for score in found.scores)


def test_rows_of_a_paper_are_held_against_the_auc(pursuit, monkeypatch):
    monkeypatch.setattr(pursuit.config, "paper", config_of(TRACKING + PAPER).paper)
    entry = pursuit.entries[0]
    pursuit.config.paper.rows[0].where["plan"] = entry.spec.plan
    comparison = PaperComparison(pursuit)
    assert comparison.rows()[0]["ours"]["value"] == entry.metrics["val_auc"]
    text = paper_text(comparison)
    assert f"{100 * entry.metrics['val_auc']:.2f}" in text
    assert "val_auc (hard-binarized), %" in " ".join(text.split())


def searched(config, folder: SearchFolder) -> Results:
    """All trials of a search of one epoch, trained here without Ray."""
    folder.path.mkdir()
    write_atomically(folder.config_file, config.dump())
    session: Any = Session(
        config, build_space(config), folder, None, progress=partial(Progress, quiet=True)
    )
    while (entry := session.ask()) is not None:
        training = Training(entry.spec, *search_data(entry.spec.task))
        metrics = training.epoch()
        session.finish(entry.id, {**metrics, "history": training.history})
    assert "best" in session.progress.line()
    return Results.of(folder)


@pytest.fixture(scope="module")
def pursuit(tmp_path_factory):
    return searched(config_of(), SearchFolder(tmp_path_factory.mktemp("home") / "pursuit"))


def test_the_front_and_its_figures_are_of_the_auc(pursuit):
    report = json.loads(json.dumps(pursuit.as_json()))
    assert set(report["reference"]) == {"val_auc", "flops"}
    assert report["points"]
    for point in report["points"]:
        assert {"val_auc", "val_precision", "val_loss", "flops"} <= set(point)
        assert "val_accuracy" not in point
    best = max(e.metrics["val_auc"] for e in pursuit.entries)
    assert pursuit.status_json()["best_auc"] == best
    table = front_summary(pursuit)
    assert "val auc %" in table
    assert f"{100 * best:.2f}" in table
    figures = write_figures(pursuit)
    assert "validation success AUC, %" in figures["front.html"].read_text()
    assert figures["front.csv"].read_text().startswith("trial,method,plan,auc,cost")


def test_a_trial_is_replayed_bit_for_bit(pursuit):
    report = replay_trial(pursuit, pursuit.entries[0])
    assert report.equal, report.text()
    assert "validation success AUC" in report.text()
    assert report.as_json()["recorded_auc"] == pursuit.entries[0].metrics["val_auc"]


def test_final_training_tests_with_the_same_measures(pursuit, tmp_path):
    save_recipe(recipe_of(pursuit, pursuit.front[0], None, [0]), tmp_path / "recipe.yaml")
    assert "% validation success AUC" in (tmp_path / "recipe.yaml").read_text()
    recipe = load_recipe(tmp_path / "recipe.yaml")
    assert recipe.expected["val_auc"] == pursuit.front[0].metrics["val_auc"]
    result = train_recipe(recipe, tmp_path / "out").as_json()
    (seed,) = result["seeds"]
    assert {"test_auc", "test_precision", "test_loss"} <= set(seed)
    assert result["test_auc_mean"] == seed["test_auc"]
    _, spec, notes = packed.load(tmp_path / "out" / "seed0.safetensors")
    assert notes["test_auc"] == seed["test_auc"]
    assert spec.plan == recipe.spec.plan


DRAWS = """\
name: draws
task: {dataset: moons, model: {name: tanh-mlp, width: 8}, epochs: 1, binarize: all}
space: {method: bayesbinn, plan: W, bayesbinn.mean_samples: 3, bayesbinn.tau: 1.0}
search: {sampler: random, trials: 1}
"""


def test_final_training_tells_the_mean_over_draws_beside_the_mode(tmp_path):
    results = searched(config_of(DRAWS), SearchFolder(tmp_path / "draws"))
    recipe = recipe_of(results, results.front[0], None, [0])
    for rest in ("float32", "float16"):
        recipe.final.rest = rest
        notes: list[str] = []
        (seed,) = train_recipe(recipe, tmp_path / rest, note=notes.append).seeds
        assert 0 < seed.metrics["test_accuracy_draws"] <= 1
        shown = f"{100 * seed.metrics['test_accuracy_draws']:.2f} % for the mean over draws"
        assert notes[-1].endswith(shown)
