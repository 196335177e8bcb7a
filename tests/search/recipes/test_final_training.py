"""Final training: what was trained is never overwritten, a folder belongs to one recipe, files have
ordinary permissions, waiting is visible and ctrl-C is heard."""

import io
import json
import os
import re
import signal
import stat
import subprocess
import threading
from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open

from bitfront import cli
from bitfront.search.recipes import final_folder
from bitfront.search.recipes.export import may_save, save_beside
from bitfront.search.recipes.final_training import train_recipe
from bitfront.search.recipes.recipe import FinalSettings, Recipe, save_recipe
from bitfront.search.recipes.training_progress import EpochReport
from bitfront.terminal.training_progress import TrainingProgress
from bitfront.trainables import files, packed
from bitfront.trainables.data import load_test, load_train
from bitfront.trainables.errors import UserError
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.loop import Training
from testbed import warm

pytestmark = pytest.mark.slow

TASK = {
    "dataset": "digits",
    "model": {"name": "mlp", "depth": 3, "width": 8},
    "epochs": 2,
    "batch_size": 128,
    "subset": None,
}


def recipe(letters="BB", method="bnn", epochs=1, seeds=(0,), name="quick-38580e12", **task):
    spec = TrialSpec(task=Task.model_validate(TASK | task), method=method, plan=letters)
    final = FinalSettings(epochs=epochs, seeds=list(seeds))
    return Recipe(name=name, spec=spec, final=final, expected={"val_accuracy": 0.9, "flops": 7.0})


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Where a person works."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def train(capsys, *words, code=0):
    assert cli.main(["train", *words]) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


def contents(folder):
    return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}


# --- folders ----------------------------------------------------------------------------------


def test_another_network_under_the_same_file_name_gets_its_own_folder(here, capsys):
    save_recipe(recipe("BB", seeds=(0, 1)), Path("recipe.yaml"))
    train(capsys, "recipe.yaml")
    before = contents("recipe-trained")
    save_recipe(recipe("FB", name="quick-other", seeds=(0, 1, 2)), Path("recipe.yaml"))
    told = " ".join(train(capsys, "recipe.yaml").split())
    assert contents("recipe-trained") == before
    (other,) = (p for p in here.iterdir() if p.is_dir() and p.name != "recipe-trained")
    assert other.name.startswith("recipe-trained-")
    assert f"goes to {other.name}" in told
    assert "the training of quick-38580e12 (epochs: 1)" in told
    plans = {
        folder: {packed.load(f)[1].plan for f in folder.glob("*.safetensors")}
        for folder in (here / "recipe-trained", other)
    }
    assert plans == {here / "recipe-trained": {"BB"}, other: {"FB"}}
    result = json.loads((other / "result.json").read_text())
    assert (result["recipe"], len(result["seeds"])) == ("quick-other", 3)
    # The same command again finds it again.
    assert train(capsys, "recipe.yaml").count("already trained") == 3


@pytest.mark.parametrize("words", [["--epochs", "2"], ["--half"]])
def test_the_same_recipe_trained_otherwise_has_its_own_folder(here, capsys, words):
    save_recipe(recipe(), Path("recipe.yaml"))
    train(capsys, "recipe.yaml")
    before = contents("recipe-trained")
    train(capsys, "recipe.yaml", *words)
    assert contents("recipe-trained") == before
    assert len(list(here.glob("recipe-trained*"))) == 2
    assert "already trained" in train(capsys, "recipe.yaml", *words)
    assert "already trained" in train(capsys, "recipe.yaml")


def test_more_seeds_join_those_that_are_there_and_fewer_lose_none(here, capsys):
    save_recipe(recipe(seeds=(0, 1)), Path("recipe.yaml"))
    train(capsys, "recipe.yaml")
    kept = contents("recipe-trained")["seed0.safetensors"]
    told = train(capsys, "recipe.yaml", "--seeds", "3")
    assert told.count("already trained") == 2
    train(capsys, "recipe.yaml", "--seeds", "1")
    result = json.loads(Path("recipe-trained/result.json").read_text())
    assert [seed["seed"] for seed in result["seeds"]] == [0, 1, 2]
    assert contents("recipe-trained")["seed0.safetensors"] == kept
    assert list(here.glob("recipe-trained*")) == [here / "recipe-trained"]


def test_a_folder_of_another_recipe_is_refused_with_exit_code_2(here, capsys):
    save_recipe(recipe("BB"), Path("a.yaml"))
    save_recipe(recipe("FB"), Path("b.yaml"))
    train(capsys, "a.yaml", "-o", "out")
    before = contents("out")
    told = train(capsys, "b.yaml", "-o", "out", code=2)
    assert told.startswith("error: out holds the training of quick-38580e12")
    assert "-o DIR" in told
    assert contents("out") == before


def test_a_seed_is_recognised_from_another_folder_and_after_a_move(here, capsys, monkeypatch):
    save_recipe(recipe(), Path("recipe.yaml"))
    train(capsys, "recipe.yaml")
    trained = contents("recipe-trained")
    (here / "sub").mkdir()
    monkeypatch.chdir(here / "sub")
    assert "already trained" in train(capsys, "../recipe.yaml")
    Path("../recipe.yaml").rename("recipe.yaml")
    Path("../recipe-trained").rename("recipe-trained")
    result = cli.main(["train", "recipe.yaml", "--json"])
    assert result == 0
    (seed,) = json.loads(capsys.readouterr().out)["seeds"]
    assert seed["checkpoint"] == "recipe-trained/seed0.safetensors"
    assert contents("recipe-trained")["seed0.safetensors"] == trained["seed0.safetensors"]


def as_version_0_1(folder, given):
    """The folder without what version 0.1 did not write."""
    train_recipe(given, folder)
    (folder / final_folder.FILE).unlink()


def test_a_folder_of_version_0_1_goes_on_with_its_own_recipe(tmp_path):
    as_version_0_1(tmp_path / "out", recipe(seeds=(0, 1)))
    before = contents(tmp_path / "out")
    notes = []
    train_recipe(recipe(seeds=(0, 1, 2)), tmp_path / "out", note=notes.append)
    assert [n.partition(":")[0] for n in notes if "already trained" in n] == ["seed 0", "seed 1"]
    after = contents(tmp_path / "out")
    assert all(after[name] == before[name] for name in before if name.startswith("seed"))


def test_a_folder_of_version_0_1_with_another_or_several_networks_is_left_alone(tmp_path):
    as_version_0_1(tmp_path / "out", recipe("BB", seeds=(0, 1)))
    before = contents(tmp_path / "out")
    with pytest.raises(UserError, match="another recipe"):
        train_recipe(recipe("FB"), tmp_path / "out")
    assert contents(tmp_path / "out") == before
    as_version_0_1(tmp_path / "other", recipe("FB", seeds=(2,)))
    for file in (tmp_path / "other").glob("seed2*"):
        file.rename(tmp_path / "out" / file.name)
    mixed = contents(tmp_path / "out")
    for letters in ("BB", "FB"):
        with pytest.raises(UserError, match="another recipe"):
            train_recipe(recipe(letters), tmp_path / "out")
        usual = tmp_path / "out.yaml"
        (tmp_path / "out").rename(tmp_path / "out-trained")
        folder, told = final_folder.folder_for(recipe(letters), usual)
        assert folder.name.startswith("out-trained-")
        assert "stays as it is" in told
        (tmp_path / "out-trained").rename(tmp_path / "out")
    assert contents(tmp_path / "out") == mixed


@pytest.mark.parametrize("lost", ["gone", "half", "foreign"])
def test_a_packed_network_without_its_result_is_not_overwritten(tmp_path, lost):
    train_recipe(recipe(), tmp_path)
    file = tmp_path / "seed0.json"
    if lost == "gone":
        file.unlink()
    elif lost == "half":
        file.write_text(file.read_text()[:30])
    else:
        file.write_text(json.dumps({"identity": "another"}))
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"seed0\.safetensors is there"):
        train_recipe(recipe(), tmp_path)
    assert contents(tmp_path) == before


def test_a_training_that_was_cut_off_before_its_result_ends_the_same(tmp_path, monkeypatch):
    given = recipe()
    train_recipe(given, tmp_path / "whole")

    def cut(path, text):
        if path.name == "seed0.json":
            raise KeyboardInterrupt
        return write(path, text)

    write = files.write_atomically
    monkeypatch.setattr("bitfront.search.recipes.seed_training.write_atomically", cut)
    with pytest.raises(KeyboardInterrupt):
        train_recipe(given, tmp_path / "cut")
    assert (tmp_path / "cut" / "seed0.safetensors").exists()
    monkeypatch.undo()
    train_recipe(given, tmp_path / "cut")
    sums = [checksum(tmp_path / folder / "seed0.safetensors") for folder in ("whole", "cut")]
    assert sums[0] == sums[1]
    assert not list((tmp_path / "cut").glob("*.state"))


def checksum(file):
    """Of the tensors and their description, whatever order they are written in."""
    with safe_open(file, framework="pt") as opened:
        return opened.metadata()["sha256"]


def test_two_at_once_do_not_share_a_folder(tmp_path):
    with final_folder.claimed(tmp_path, recipe()):
        with pytest.raises(UserError, match="at work"), final_folder.claimed(tmp_path, recipe()):
            pass
        with pytest.raises(UserError, match="holds"), final_folder.claimed(tmp_path, recipe("FB")):
            pass
    with final_folder.claimed(tmp_path, recipe()):
        pass


def test_of_two_that_replace_a_damaged_signature_one_gets_the_folder(tmp_path, monkeypatch):
    """The second one starts just when the first one has found the signature damaged."""
    (tmp_path / final_folder.FILE).write_text("{")
    read, claims, second = final_folder._stored_owner, [], []

    def claim(of):
        try:
            with final_folder.claimed(tmp_path, of):
                claims.append(final_folder.owner_of(of).identity)
        except UserError:
            return

    def and_then_another(folder):
        found = read(folder)
        if found is None and len(seen) == 1 and not second:
            second.append(threading.Thread(target=claim, args=(recipe("FB"),)))
            second[0].start()
            second[0].join(0.5)  # it ends, or waits for the first one
        seen.append(found)
        return found

    seen = []
    monkeypatch.setattr(final_folder, "_stored_owner", and_then_another)
    claim(recipe())
    second[0].join()
    assert len(claims) == 1
    assert read(tmp_path).identity == claims[0]


def test_a_file_where_a_folder_should_be_is_one_line(here, capsys):
    save_recipe(recipe(), Path("recipe.yaml"))
    Path("out").write_text("mine")
    assert "out cannot be written" in train(capsys, "recipe.yaml", "-o", "out", code=2)
    assert Path("out").read_text() == "mine"


# --- permissions --------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_every_file_has_ordinary_permissions(tmp_path, umask):
    before = os.umask(umask)
    try:
        given = recipe(pretrain=1)
        train_recipe(given, tmp_path / "out", pretrained=tmp_path / "pretrained")
        save_recipe(given, tmp_path / "recipe.yaml")
    finally:
        os.umask(before)
    files = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert {f.suffix for f in files} >= {".safetensors", ".json", ".yaml"}
    assert len(list((tmp_path / "pretrained").rglob("*.safetensors"))) == 1
    wrong = {f.name: oct(f.stat().st_mode) for f in files if mode(f) != 0o666 & ~umask}
    assert not wrong


def mode(file):
    return stat.S_IMODE(file.stat().st_mode)


# --- recipes ------------------------------------------------------------------------------------


def test_an_exported_recipe_replaces_no_other(tmp_path):
    usual = tmp_path / "recipe.yaml"
    assert save_beside(recipe("BB"), usual) == usual
    mine = usual.read_text().replace("A bitfront recipe", "My favourite")
    usual.write_text(mine)
    assert save_beside(recipe("BB"), usual) == usual
    assert usual.read_text() == mine
    for _ in range(2):
        assert save_beside(recipe("FB"), usual) == tmp_path / "recipe-2.yaml"
    edited = yaml.safe_load(mine)
    edited["final"]["epochs"] = 77
    usual.write_text(yaml.safe_dump(edited))
    assert not may_save(recipe("BB"), usual)
    assert save_beside(recipe("BB"), usual) == tmp_path / "recipe-3.yaml"
    assert yaml.safe_load(usual.read_text())["final"]["epochs"] == 77
    usual.write_text("not: a recipe\n")
    assert save_beside(recipe("WW"), usual) == tmp_path / "recipe-4.yaml"
    assert save_beside(recipe("WW"), usual, force=True) == usual


# --- waiting ------------------------------------------------------------------------------------


def test_lines_tell_epoch_loss_accuracy_and_eta(here, capsys):
    save_recipe(recipe(epochs=3, seeds=(0, 1)), Path("recipe.yaml"))
    lines = train(capsys, "recipe.yaml").splitlines()
    epochs = [line for line in lines if "epoch" in line and line.startswith("seed")]
    assert len(epochs) == 6
    assert re.fullmatch(
        r"seed 0: epoch 1/3, loss \d\.\d+, train accuracy \d+\.\d %, ETA \d+ s", epochs[0]
    )
    assert "ETA" not in epochs[-1]
    assert "\033" not in "".join(lines)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_a_bar_over_epochs(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    out, lines = Terminal(), []
    view = TrainingProgress(lines.append, out)
    view.start(recipe(), seeds=2)
    view.epoch(EpochReport(0, 0, 4))
    view.epoch(EpochReport(0, 1, 4, loss=0.5, accuracy=0.75))
    view.note("seed 0: 88.00 % test accuracy")
    view.stop()
    shown = re.sub(r"\033\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert "90.0 % validation in the search" in shown
    assert "seed 0 (1 of 2)" in shown
    assert "1/4" in shown
    assert "loss 0.500  train acc 75.0 %  ETA" in shown
    soft = EpochReport(0, 1, 4, loss=0.5, accuracy=0.75, soft=True)
    assert soft.text().endswith("train accuracy 75.0 % (weights not binary yet)")
    assert "88.00 % test accuracy" in shown
    assert not lines


def test_the_eta_counts_the_seeds_to_come_and_not_what_was_there(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    view = TrainingProgress(lambda text: None)
    view.start(recipe(), seeds=2)
    view.epoch(EpochReport(0, 6, 10))  # taken up after six epochs
    assert view.eta() is None
    clock[0] += 3.0
    view.epoch(EpochReport(0, 7, 10, loss=1.0))
    assert view.eta() == pytest.approx(3.0 * (3 + 10))
    clock[0] += 9.0
    for epoch in (8, 9, 10):
        view.epoch(EpochReport(0, epoch, 10, loss=1.0))
    view.epoch(EpochReport(1, 0, 10))
    assert view.eta() == pytest.approx(3.0 * 10)


@pytest.mark.parametrize("method", ["fp", "bnn", "bnn++", "bayesbinn", "edge-popup"])
def test_looking_at_the_accuracy_changes_nothing(method):
    letters = {"fp": "FF", "edge-popup": "WW", "bayesbinn": "WW"}.get(method, "BB")
    spec = recipe(letters, method, batch_size=256).spec
    states = []
    for looks in (False, True):
        training = Training(
            spec, load_train("digits"), load_test("digits"), validate_each_epoch=False
        )
        while not training.done:
            training.epoch()
            if looks and not training.done:
                assert 0 <= training.quality_in_training() <= 1
        states.append((training.history[-1]["val_loss"], training.model.state_dict()))
    assert states[0][0] == states[1][0]
    for name, tensor in states[0][1].items():
        assert tensor.equal(states[1][1][name]), name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_ctrl_c_is_acknowledged_and_the_last_epoch_kept(here, number):
    save_recipe(recipe(epochs=5000), Path("recipe.yaml"))
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from bitfront.cli import main; sys.exit(main(['train', 'recipe.yaml']))"
    )
    command = [warm.python(), "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout:
            if "epoch 3/" in line:
                break
        process.send_signal(number)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 130
    assert told.lstrip().startswith("interrupted, saving ...")
    kept = re.search(r"seed 0 after epoch (\d+) of 5000", " ".join(told.split()))
    assert "Traceback" not in told
    (state,) = Path("recipe-trained").glob("seed0-*.state")
    # An epoch that ended between its file and its line is kept too.
    assert torch.load(state, weights_only=True)["epochs_done"] - int(kept[1]) in (0, 1)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("seed0.json", {"metrics": {}}),
        ("seed0.json", {"metrics": {"test_accuracy": float("nan")}}),
        ("seed0.json", {"seed": 77}),
        ("seed0.json", {"bytes": -5}),
        ("seed0.safetensors", None),
    ],
)
def test_a_damaged_result_is_not_taken_for_a_finished_seed(here, capsys, file, content):
    save_recipe(recipe(), Path("recipe.yaml"))
    assert cli.main(["train", "recipe.yaml", "--quiet"]) == 0
    path = Path("recipe-trained") / file
    if content is None:
        path.write_bytes(path.read_bytes()[:100])
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | content))
    capsys.readouterr()
    assert cli.main(["train", "recipe.yaml", "--quiet"]) == 2
    assert "it is not overwritten" in " ".join(capsys.readouterr().err.split())
