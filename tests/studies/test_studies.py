"""Studies: steps are done once and continued, pages hold the numbers of the kept files."""

import json
from importlib import import_module

import pytest

from bitfront.search.config.load import load
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.results.published import kept
from bitfront.search.results.results import Results
from bitfront.trainables.errors import UserError
from studies import cifar10, finals, pages
from studies.command import main
from studies.steps import STUDIES, Place, Step, Study

ALL = [import_module(f"studies.{name}").STUDY for name in ("cifar10", "tiny_imagenet", "own")]


@pytest.fixture
def place(tmp_path):
    return Place("cifar10-resnet20", tmp_path / "out", tmp_path / "home")


@pytest.mark.parametrize("study", ALL, ids=lambda study: study.name)
def test_the_page_of_a_study_is_what_its_kept_files_say(study):
    here = Place(study.name, STUDIES / study.name, STUDIES / "nowhere")
    text = (here.folder / pages.PAGE).read_text()
    assert pages.page(study, here) == text, f"python -m studies.{study.name}"
    prose = pages.BLOCK.sub("", text)
    assert len(prose.split()) <= 600


def test_kept_files_name_no_place_of_a_machine():
    for file in STUDIES.glob("*/kept/*.json"):
        text = file.read_text()
        assert not any(f'"{root}' in text for root in ("/home", "/tmp", "/root", "/work")), file


def test_an_interrupted_study_goes_on_and_what_is_done_is_left_alone(place):
    done = []

    def step(name, alone=True):
        def run(there):
            done.append(name)
            if done.count(name) == 1 and name == "c":
                raise KeyboardInterrupt
            there.keep(name, {"of": name})

        return Step(name, name, 1, run, alone=alone)

    steps = [step("a"), step("b", alone=False), step("c", alone=False), step("d")]
    study = Study("cifar10-resnet20", steps, {})
    with pytest.raises(KeyboardInterrupt):
        study.train(place, lambda _: None)
    assert sorted(done) == ["a", "b", "c"]
    assert not place.has("c")
    study.train(place, lambda _: None)
    assert sorted(done) == ["a", "b", "c", "c", "d"]
    assert study.left(place) == []
    assert "done" in study.plan(place)


@pytest.mark.parametrize("fault", [KeyboardInterrupt, UserError("no data")])
def test_no_step_begins_after_one_that_failed(place, fault):
    done = []

    def failing(_there):
        raise fault

    def next_one(_there):
        done.append("b")

    steps = [Step("a", "a", 1, failing), Step("b", "b", 1, next_one)]
    with pytest.raises((KeyboardInterrupt, UserError)):
        Study("cifar10-resnet20", steps, {}).train(place, lambda _: None)
    assert done == []


def test_the_plan_of_a_study_starts_nothing(capsys, tmp_path):
    where = ["--out", str(tmp_path / "out"), "--home", str(tmp_path / "home")]
    assert main(cifar10.STUDY, ["--plan", *where]) == 0
    printed = capsys.readouterr().out
    assert all(step.name in printed for step in cifar10.STEPS)
    assert list(tmp_path.iterdir()) == []


def told(place, name, file, accuracy, *changes):
    """A search of which every trial reached what `accuracy` says of its spec and its costs."""
    config, space = load(place.folder / file, list(changes), name)
    folder = SearchFolder(place.home / name)
    folder.path.mkdir(parents=True)
    folder.config_file.write_text(config.dump())
    ledger = Ledger(folder.ledger_url, config, space)
    while (entry := ledger.ask()) is not None:
        times = [{"epoch": 1, "seconds": 60.0, "cpu_seconds": 60.0}]
        ledger.tell(entry.id, "complete", {"val_accuracy": accuracy(entry)}, times)
    kept.write(Results.of(folder), place.kept)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Methods, ours and three selectors with two seeds, all made up."""
    root = tmp_path_factory.mktemp("compared")
    place = Place("cifar10-resnet20", root / "out", root / "home")
    told(
        place,
        "methods",
        "methods.yaml",
        lambda e: 0.2 + 30 * e.spec.task.optimizer.lr + 0.1 * (e.spec.method == "react"),
    )
    told(
        place,
        "layers",
        "layers.yaml",
        lambda e: 0.5 + e.costs["flops_pct"] / 400,
        "search.trials=8",
        "search.confirm=0",
        "search.sampler=random",
    )
    for seed in (0, 1):
        told(
            place,
            f"selectors-40-20-seed{seed}",
            "selectors.yaml",
            lambda e: 0.6 + 0.1 * (e.drawn["plan.selector"] == "last") + 0.02 * e.spec.seed,
            "space.plan={selector: [first, last, random], budget: [40, 20], rule: nearest}",
            f"search.seed={seed}",
            "search.trials=6",
        )
    return place


def test_the_best_selector_is_that_of_the_best_mean_and_ours_costs_no_more(compared):
    place = compared
    trials = cifar10.best_selected(place, 40)
    assert [e.drawn["plan.selector"] for _, e in trials] == ["last", "last"]
    assert [e.spec.seed for _, e in trials] == [0, 1]
    home, entry = cifar10.chosen(place, "selector-40", 1)
    assert home.config.name == "selectors-40-20-seed1"
    assert entry.spec.seed == 1
    ours, best = cifar10.chosen(place, "ours-40", 0)
    dearest = max(e.costs["flops_pct"] for _, e in trials)
    within = [e for e in ours.entries if e.costs["flops_pct"] <= dearest]
    assert best.metrics["val_accuracy"] == max(
        (e.metrics["val_accuracy"] for e in within), default=min(ours.front_values)[0]
    )


def test_the_page_counts_what_the_arms_trained_and_says_what_is_missing(compared):
    place = compared
    text = cifar10.search_numbers(place)
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in text.splitlines()}
    assert rows["bitfront"][:3] == ["8", "8", "8.0"]
    assert rows["selectors"][:3] == ["12", "12", "12.0"]
    assert rows["last"][0] == "4"
    assert rows["last"][-2:] == ["71.0", "71.0 |"]
    trained = "8 epochs by `bitfront`, 12 by the selectors, which are not at 80, 60 and 10 % yet"
    assert f"Trained: {trained} (bar: no more than theirs): met." in text
    assert "learning rate 0.005 for all, `react` for selectors and for `bitfront`" in text
    assert cifar10.rate(place) == ["task.optimizer.lr=0.005"]
    assert "Not measured yet: `flops`, `flops-w`." in text
    assert cifar10.whole_numbers(place).startswith("Not measured yet: `whole`, `stock`")
    cifar10.draw(place)
    assert (place.out / "front.png").stat().st_size > 10_000


@pytest.mark.parametrize(("gain", "said"), [(0.006, "met"), (0.004, "**missed**")])
def test_the_bar_is_over_the_seeds_that_both_have(place, gain, said):
    for seed in (0, 1):
        for name, test in (("ours-40", 0.8 + gain), ("selector-40", 0.8)):
            place.keep(
                finals.step_of(name, seed), {"seed": seed, "test_accuracy": test + 0.01 * seed}
            )
    place.keep(finals.step_of("ours-40", 2), {"seed": 2, "test_accuracy": 0.1})
    gains = f"by seed {100 * gain:+.2f}, {100 * gain:+.2f}; bar: at least +0.5 in the mean"
    assert f"({gains}): {said}, with 2 of 3 seeds; p = " in cifar10.verdict(place, "ours", 40)


def test_a_difference_within_the_spread_of_seeds_may_be_chance():
    assert finals.chance([0.76, 0.75, 0.78], [0.72, 0.65, 0.80]) == pytest.approx(0.41, abs=0.05)
    assert finals.chance([0.80, 0.81, 0.80], [0.70, 0.71, 0.70]) < 0.001


def test_what_is_kept_of_a_deployment_names_no_folder(place, monkeypatch, tmp_path):
    packed = tmp_path / "seed0.safetensors"
    packed.write_bytes(b"1234")
    answers = {
        "deploy": {"files": [{"format": "c", "path": str(tmp_path), "bytes": 1500}]},
        "bench": {"batch": 1},
    }
    monkeypatch.setattr(
        Place, "bitfront", lambda _place, verb, *_words, **_more: json.dumps(answers[verb])
    )
    found = finals.files_of(place, packed)
    assert found["files"] == [{"format": "c", "bytes": 1500}]
    assert found["packed_bytes"] == 4
