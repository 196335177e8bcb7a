"""Claims about files of a search that are damaged, foreign or of another version: one line that
names the file, exit code 2, and no other search suffers. What we write reads back as it was."""

import json
import re
import shutil
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bitfront.cli import main
from bitfront.search.config.load import load_text
from bitfront.search.config.source import parse
from bitfront.search.config.space import build_space
from bitfront.search.ledger.folder import NAME, SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.recipes.export import recipe_of
from bitfront.search.recipes.finals import FILE, FinalTraining, final_trainings, note_finals
from bitfront.search.recipes.recipe import Provenance, load_recipe, save_recipe
from bitfront.search.recipes.seed_training import SeedResult, finished_seed
from bitfront.search.results.results import Results
from bitfront.search.results.stored import stored_config
from bitfront.search.tracking.extras import extras_of
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically

pytestmark = pytest.mark.slow

TINY = """\
name: tiny
task:
  dataset: digits
  model: {name: mlp, depth: 5, width: 16}
  epochs: 3
space:
  method: [bnn, bnn++]
  plan: {per: layer, levels: [F, B]}
  optimizer.lr: {float: [0.001, 0.03], log: true}
search: {sampler: random, trials: 6, seed: 0}
"""
SETTINGS = settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NAMES = st.one_of(st.from_regex(r"[0-9a-f]{8}", fullmatch=True), st.just("38580e12"))
# What pydantic takes for text: everything that can be encoded.
TEXTS = st.text(st.characters(codec="utf-8"))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
FINALS = st.builds(
    FinalTraining,
    recipe=TEXTS,
    trial=NAMES,
    method=TEXTS,
    plan=TEXTS,
    seed=st.integers(0, 2**40),
    epochs=st.integers(1, 10**6),
    checkpoint=TEXTS,
    seconds=FINITE,
    ended=FINITE,
    metrics=st.dictionaries(TEXTS, FINITE),
)


def begin(root, name, trials=6):
    """A search with made-up results."""
    config, space = load_text(TINY, "tiny.yaml", ["tracking.enabled=false"], name)
    folder = SearchFolder(root / name)
    write_atomically(folder.config_file, config.dump())
    ledger = Ledger(folder.ledger_url, config, space)
    for number in range(trials):
        entry = ledger.ask()
        metrics = {"epoch": 3, "val_accuracy": (number + 1) / 10}
        ledger.tell(entry.id, "complete", metrics, [metrics])
    storage: Any = ledger.storage
    storage._backend.engine.dispose()
    return folder


@pytest.fixture(scope="module")
def searches(tmp_path_factory):
    root = tmp_path_factory.mktemp("searches")
    for name in ("one", "other"):
        begin(root, name)
    return root


@pytest.fixture
def folder(searches, tmp_path, monkeypatch):
    """A search that may be damaged, with another one beside it."""
    shutil.copytree(searches, tmp_path / "home")
    monkeypatch.setenv("BITFRONT_HOME", str(tmp_path / "home"))
    return SearchFolder(tmp_path / "home" / "one")


def answer(capsys, *arguments):
    """(exit code, what was printed); never a traceback."""
    code = main(list(arguments))
    out, error = capsys.readouterr()
    assert "Traceback" not in error
    return code, out, error


# --- what is written reads back -----------------------------------------------------------------


@SETTINGS
@given(trial=NAMES, search=st.from_regex(NAME, fullmatch=True), name=TEXTS, told=TEXTS)
@example(trial="38580e12", search="1e5", name="5e3", told="yes")
def test_a_recipe_reads_back_whatever_its_trial_is_called(
    tmp_path, searches, trial, search, name, told
):
    results = Results.of(SearchFolder(searches / "one"))
    recipe = recipe_of(results, results.front[0], None, [0])
    recipe.name = name
    recipe.provenance = Provenance(
        search=search, trial=trial, number=1, bitfront=told, exported="2026-01-01"
    )
    save_recipe(recipe, tmp_path / "recipe.yaml")
    assert load_recipe(tmp_path / "recipe.yaml") == recipe


def test_a_recipe_of_version_0_1_whose_trial_looks_like_a_number_opens(searches, tmp_path):
    results = Results.of(SearchFolder(searches / "one"))
    file = tmp_path / "recipe.yaml"
    entry = results.front[0]
    save_recipe(recipe_of(results, entry, None, [0]), file)
    text = file.read_text()
    for written in (f"trial: {entry.id}", f"trial: '{entry.id}'"):
        text = text.replace(written, "trial: 38580e12")
    file.write_text(text)
    assert load_recipe(file).provenance.trial == "38580e12"


@SETTINGS
@given(
    name=st.from_regex(NAME, fullmatch=True),
    description=TEXTS,
    label=TEXTS,
    data_dir=TEXTS,
    where=st.one_of(st.booleans(), st.integers(-(2**60), 2**60), FINITE, TEXTS),
)
@example("1e5", "38580e12", "2e3", "0x1", "1e5")
@example("a", "x\n y: z", "\x85", "~", True)
def test_a_search_reads_back_whatever_it_says(
    tmp_path, make_config, name, description, label, data_dir, where
):
    rows = [{"label": label, "value": 0.5, "where": {"method": where}}]
    paper = {"title": label, "table": "1", "dataset": "d", "model": "m", "rows": rows}
    config = make_config()
    data = {**config.open_data(), "name": name, "description": description, "paper": paper}
    data["task"]["data_dir"] = data_dir
    config = type(config).model_validate(data)
    folder = SearchFolder(tmp_path / "search")
    write_atomically(folder.config_file, config.dump())
    assert stored_config(folder) == config
    assert parse(config.dump(), "search.yaml").data == config.open_data()


def test_a_search_of_version_0_1_opens_and_is_given_a_format(folder, capsys):
    text = folder.config_file.read_text()
    assert text.startswith("bitfront_search: 1\n")
    # As PyYAML wrote it: 1e5 is no number to it, so it is not in quotes.
    old = text.replace("bitfront_search: 1\n", "").replace("description: ''", "description: 1e5")
    folder.config_file.write_text(old)
    assert stored_config(folder).description == "1e5"
    assert answer(capsys, "front", "one")[0] == 0
    write_atomically(folder.config_file, stored_config(folder).dump())
    assert stored_config(folder).description == "1e5"


@SETTINGS
@given(st.lists(FINALS, max_size=4, unique_by=lambda final: final.key))
def test_final_trainings_read_back(tmp_path_factory, finals):
    folder = SearchFolder(tmp_path_factory.mktemp("search"))
    note_finals(folder, finals)
    assert final_trainings(folder) == finals


@SETTINGS
@given(st.from_regex(r"[a-z+]{3,12}://[a-z0-9./_-]{1,40}", fullmatch=True))
def test_the_address_of_a_ledger_reads_back(tmp_path, url):
    folder = SearchFolder(tmp_path)
    folder.set_ledger_url(url)
    assert folder.ledger_url == url
    assert folder.identity == SearchFolder(tmp_path).identity


@SETTINGS
@given(st.dictionaries(TEXTS, FINITE), st.integers(0, 2**40), FINITE)
def test_the_result_of_a_seed_reads_back(tmp_path, metrics, number, seconds):
    (tmp_path / "seed.safetensors").touch()
    result = SeedResult(1, metrics, str(tmp_path / "seed.safetensors"), number, seconds, 10)
    file = tmp_path / "seed1.json"
    write_atomically(file, json.dumps({"identity": "38580e12", **asdict(result)}))
    checkpoint = Path(result.checkpoint)
    assert finished_seed(file, checkpoint, "38580e12") == result
    assert finished_seed(file, checkpoint, "another") is None


# --- damage -------------------------------------------------------------------------------------

DAMAGED_FILES = [
    ("search.yaml", b"{", "search.yaml:1 damaged"),
    ("search.yaml", b"x: &a [*a]", "search.yaml:1 damaged"),
    ("search.yaml", b"name: \xff", "search.yaml:1 cannot be read: not UTF-8"),
    ("search.yaml", b"", "search.yaml: damaged"),
    ("search.yaml", b"- a", "search.yaml: damaged"),
    ("search.yaml", b"name: one", "search.yaml: damaged, or of another version: task"),
    ("search.yaml", b"bitfront_search: 2\nname: one", "written by a newer bitfront (format 2"),
    ("search.yaml", b"bitfront_search: x\nname: one", "no version of its format"),
    ("ledger.json", b"{", "ledger.json:1 damaged"),
    ("ledger.json", b"[]", "ledger.json: damaged: it names no database"),
    ("ledger.json", b'{"url": 5}', "ledger.json: damaged: it names no database"),
    ("ledger.json", b"\xff", "ledger.json:1 cannot be read: not UTF-8"),
    ("ledger.json", b"[" * 100_000, "ledger.json: damaged"),
    ("ledger.json", b'{"url": "x://y"}', "at x://y, which you have not named"),
    ("ledger.db", b"", None),
    ("ledger.db", b"x" * 5000, "the ledger of 'one' cannot be read: file is not a database"),
]


@pytest.mark.parametrize(("name", "content", "told"), DAMAGED_FILES)
def test_a_damaged_file_is_told_and_hides_no_other_search(folder, capsys, name, content, told):
    (folder.path / name).write_bytes(content)
    code, out, _ = answer(capsys, "status")
    assert "other" in out
    assert "complete" in out.split("other", 1)[1]
    assert code == (told is not None)
    told_json = json.loads(answer(capsys, "status", "--json")[1])
    assert [s["search"] for s in told_json] == ["one", "other"] or told_json[0]["search"] == "other"
    for verb in (["front"], ["front", "--csv"], ["export", "--knee"], ["report"], ["resume"]):
        if told is None:
            continue
        code, _, error = answer(capsys, verb[0], "one", *verb[1:])
        assert code == 2
        assert told in " ".join(error.split("\n"))
        assert len(error.splitlines()) <= 2


TRIAL = "UPDATE trial_user_attributes SET value_json = '{}' WHERE key = '{}'"
STUDY = "UPDATE study_user_attributes SET value_json = '{}' WHERE key = '{}'"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (TRIAL.format("{", "costs"), "damaged"),
        (TRIAL.format("5", "id"), "no usable id"),
        (TRIAL.format("{}", "costs"), "costs"),
        (TRIAL.format('{"flops": "x"}', "costs"), "costs"),
        (TRIAL.format('{"flops": ' + "9" * 400 + "}", "costs"), "costs"),
        (TRIAL.format("[]", "result"), "result"),
        (TRIAL.format('{"metrics": {"val_accuracy": "x"}}', "result"), "metrics"),
        (TRIAL.format('{"metrics": {}, "history": {"epoch": 1}}', "result"), "history"),
        (TRIAL.format("null", "spec"), "damaged"),
        (TRIAL.format("[" * 100_000, "point"), "damaged"),
        ("DELETE FROM trial_user_attributes WHERE key = 'costs'", "another version"),
        ("UPDATE trials SET state = 'x'", "another version"),
        ("UPDATE trials SET datetime_start = 'x'", "damaged"),
        ("UPDATE trials SET number = 'x'", "damaged"),
        ("DELETE FROM trial_values", "values"),
        ("UPDATE trial_params SET distribution_json = '[]'", "damaged"),
        ("UPDATE trial_params SET param_value = 99", "damaged"),
        ("DELETE FROM study_user_attributes WHERE key = 'reference'", "no reference point"),
        (STUDY.format("[1, 2]", "reference"), "damaged"),
        (STUDY.format("5", "reference"), "damaged"),
        (STUDY.format("{}", "networks"), "damaged"),
        (STUDY.format("2", "format"), "newer bitfront"),
    ],
)
def test_a_damaged_ledger_is_told_and_hides_no_other_search(folder, capsys, statement, told):
    with sqlite3.connect(folder.path / "ledger.db") as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute(statement)
    before = (folder.path / "search.yaml").stat().st_mtime_ns
    assert "other" in answer(capsys, "status")[1]
    for verb in ("front", "export", "resume"):
        code, _, error = answer(capsys, verb, "one", *(["--knee"] if verb == "export" else []))
        assert code == 2
        assert told in error
        assert len(error.splitlines()) <= 2
    assert (folder.path / "search.yaml").stat().st_mtime_ns == before  # nothing was changed


def test_what_only_a_driver_reads_of_a_ledger_is_told_too(folder, capsys):
    with sqlite3.connect(folder.path / "ledger.db") as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute("UPDATE study_directions SET direction = 'x'")
    code, _, error = answer(capsys, "resume", "one")
    assert code == 2
    assert "the ledger of 'one' is damaged: 'x'" in error
    assert len(error.splitlines()) == 1


def test_a_ledger_of_version_0_1_opens_and_is_given_a_format(folder, make_config):
    def formats():
        with sqlite3.connect(folder.path / "ledger.db") as database:
            return database.execute(
                "SELECT value_json FROM study_user_attributes WHERE key = 'format'"
            ).fetchall()

    assert formats() == [("1",)]
    with sqlite3.connect(folder.path / "ledger.db") as database:
        database.execute("DELETE FROM study_user_attributes WHERE key = 'format'")
    assert len(Results.of(folder).entries) == 6
    config = stored_config(folder)
    assert len(Ledger(folder.ledger_url, config, build_space(config)).entries) == 6
    assert formats() == [("1",)]


def test_a_recipe_of_a_newer_version_is_refused(tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text("bitfront_recipe: 2\nname: x\n")
    code, _, error = answer(capsys, "train", str(tmp_path / "recipe.yaml"))
    assert code == 2
    assert "newer bitfront" in error
    assert "update" in error


def test_half_a_line_of_final_trainings_is_no_loss(folder, capsys):
    final = FinalTraining("r", "t", "bnn", "B", 0, 1, "nowhere", 1.0, 2.0, {"test_accuracy": 0.5})
    note_finals(folder, [final])
    file = folder.path / FILE
    whole = file.read_text()
    file.write_text(whole + whole[: len(whole) // 2])
    assert final_trainings(folder) == [final]
    another = FinalTraining(**{**asdict(final), "seed": 1})
    note_finals(folder, [another])
    assert final_trainings(folder) == [final, another]
    for damaged in ("{}", "[]", "5", "{", '{"recipe": 1}', "\x00"):
        file.write_text(f"{whole}{damaged}\n{whole}")
        code, _, error = answer(capsys, "figure", "one", "--kind", "masks", "-o", "x.png")
        assert code == 2
        assert f"{FILE}:2 damaged" in error
        assert [extra.kind for extra in extras_of(folder, [])] == ["final"]
    file.write_bytes(b"\xff\n")
    assert extras_of(folder, []) == []
    with pytest.raises(UserError, match=f"{FILE}:1 cannot be read"):
        final_trainings(folder)


@pytest.mark.parametrize("content", [b"\xff", b"", b"../..", b"a b", b"x" * 100])
def test_a_damaged_identity_is_told(folder, content):
    (folder.path / "identity").write_bytes(content)
    with pytest.raises(UserError, match="identity"):
        _ = folder.identity


@pytest.mark.parametrize("content", [b"\xff", b"", b"{", b"5", b'{"host": 1, "pid": "x"}', b"[]"])
def test_a_damaged_lock_tells_of_no_driver(folder, content):
    with folder.locked():
        (folder.path / "lock").write_bytes(content)
        assert folder.running
        assert folder.driver is None


@pytest.mark.parametrize("content", [b"", b"{", b"5", b"\xff", b'"x"', b"[]", b'{"identity": "i"}'])
def test_a_damaged_result_of_a_seed_counts_as_none(tmp_path, content):
    (tmp_path / "seed0.json").write_bytes(content)
    assert finished_seed(tmp_path / "seed0.json", tmp_path / "seed0.safetensors", "i") is None


def test_damaged_selections_belong_to_no_search(folder):
    for number, content in enumerate((b"{", b"5", b"[]", b'{"spec": {}}', b"\xff")):
        (folder.path / f"selection-{number}.json").write_bytes(content)
    assert extras_of(folder, []) == []


def test_a_damaged_search_is_not_the_one_pages_open_on(folder):
    from bitfront.dashboards.pages.server import HomeSource
    from bitfront.search.results.stored import newest_readable

    folder.config_file.write_text("{")
    root = folder.path.parent
    assert newest_readable(root).name == "other"
    source = HomeSource(root)
    assert {listed.name for listed in source.searches()} == {"one", "other"}
    assert "search.yaml:1 damaged" in source.look("one")
    assert source.look("other").name == "other"


def test_a_trial_is_found_beside_a_damaged_search(folder):
    from bitfront.search.recipes.replay import find_trial

    folder.config_file.write_text("{")
    entry = Results.of(SearchFolder(folder.path.parent / "other")).entries[0]
    assert find_trial(folder.path.parent, entry.id)[1].id == entry.id
    with pytest.raises(UserError, match="damaged"):
        find_trial(folder.path.parent, f"one/{entry.id}")


@pytest.mark.parametrize(
    "assignment",
    [
        "name=!!timestamp x",
        "task.epochs=!!int abc",
        "task.subset=" + "9" * 400,
        "limits.flops=" + "9" * 400,
        "search.early_stopping=!!bool maybe",
        "space.plan=&a [*a]",
        "task.epochs=2001-99-99",
        "task.model.width=" + "9" * 400,
        "task.model.width=" + "9" * 200_000,
        "description=" + "[" * 5000,
        "storage=" + "9" * 400,
        'storage="\\ud800"',
        "storage=~no-such-user/x",
        "task.loss.distill.teacher=" + "9" * 400,
        "task.loss.distill.teacher=~no-such-user/x",
        'task.loss.distill={kind: logits, teacher: "a\\0b"}',
        "task.pretrain=" + "/x" * 4000,
        'task.pretrain="a\\0b"',
        "x" * 200_000,
        "space=" + "x" * 200_000,
        "space.method=" + "x" * 200_000,
    ],
)
def test_no_assignment_ends_in_a_traceback_or_repeats_itself(tmp_path, capsys, assignment):
    (tmp_path / "tiny.yaml").write_text(TINY)
    code, _, error = answer(capsys, "validate", str(tmp_path / "tiny.yaml"), "--set", assignment)
    assert code == 2
    assert len(error) < 3000


def test_a_value_of_a_large_yaml_is_not_repeated(tmp_path, capsys):
    (tmp_path / "tiny.yaml").write_text(TINY.replace("digits", "x" * 200_000))
    code, _, error = answer(capsys, "validate", str(tmp_path / "tiny.yaml"))
    assert code == 2
    assert len(error) < 3000


@pytest.mark.parametrize(
    "option",
    [
        "--classes=" + "9" * 400,
        "--classes=0",
        "--shape=²x3",
        "--shape=999999999x999999999x999999999",
        "--shape=" + "9" * 400,
        "--plan=front:²",
        "--set=width=" + "9" * 400,
        "--set=depth=!!int abc",
    ],
)
def test_the_price_of_an_impossible_network_is_an_error(capsys, option):
    code, _, error = answer(capsys, "cost", "mlp", option)
    assert code == 2
    assert len(error) < 3000


def test_an_option_of_many_letters_is_not_repeated(capsys):
    assert main(["validate", "--trials", "x" * 200_000]) == 2
    assert len(capsys.readouterr().err) < 3000


def test_a_file_whose_name_is_no_text_is_answered(tmp_path, tiny_yaml):
    import os
    import subprocess
    import sys

    name = os.fsencode(tmp_path) + b"/caf\xe9.yaml"
    with open(name, "w") as file:
        file.write(tiny_yaml)
    done = subprocess.run(
        [sys.executable, "-m", "bitfront.cli", "validate", name], capture_output=True, check=False
    )
    assert done.returncode == 0
    assert all(b" ..." in line for line in done.stderr.splitlines()), "more than progress"
    assert b"valid, search 'tiny'" in b" ".join(done.stdout.split())


def test_the_teacher_of_a_damaged_recipe_is_told(tmp_path):
    from bitfront.trainables.training.distillation import read_recipe

    file = tmp_path / "teacher.yaml"
    for content in (b"x: &a [*a]", b"\xff", b"{", b"5", b"spec: !!int x", b"final: {epochs: .inf}"):
        file.write_bytes(content)
        with pytest.raises(UserError, match=str(Path(file))):
            read_recipe(file)


@pytest.mark.parametrize("name", ["search.yaml", "ledger.json", "ledger.db", "finals.jsonl"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(folder, capsys, name):
    import os

    (folder.path / name).unlink(missing_ok=True)
    os.mkfifo(folder.path / name)
    _, out, _ = answer(capsys, "status")
    assert "other" in out
    for verb in ("front", "report"):
        assert answer(capsys, verb, "one")[0] in (0, 2)


@pytest.mark.parametrize("verb", ["front", "resume", "report", "export", "status", "extend"])
def test_a_ledger_that_is_gone_is_an_error_where_the_search_had_trials(folder, capsys, verb):
    for file in folder.path.glob("ledger.db*"):
        file.unlink()
    (folder.path / "front.csv").write_text("trial\n")
    more = {"export": ["--knee"], "extend": ["--trials", "+1"]}.get(verb, [])
    code, out, error = answer(capsys, verb, "one", *more)
    assert code == (1 if verb == "status" else 2)
    told = " ".join((out + error).split())
    assert f"its ledger {folder.path / 'ledger.db'} is missing" in told
    assert not (folder.path / "ledger.db").exists()


def test_a_complete_search_is_not_stopped_but_said_to_be_complete(folder, capsys):
    text = folder.config_file.read_text()
    trials = len(Results.of(folder).entries)
    folder.config_file.write_text(re.sub(r"trials: \d+", f"trials: {trials}", text))
    code, out, _ = answer(capsys, "stop", "one")
    assert (code, out) == (0, "search 'one' is complete: there is nothing to stop\n")


def test_a_search_without_trials_is_not_compared(folder, capsys):
    (folder.path / "ledger.db").write_bytes(b"")
    code, _, error = answer(capsys, "compare", "one", "other")
    assert code == 2
    assert "search 'one' has no trial to compare yet" in error
