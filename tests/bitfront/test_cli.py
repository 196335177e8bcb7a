"""The command line: quick, helpful, and quiet about its insides."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bitfront.cli import build_parser, main
from bitfront.verb_files import find_verbs

SEARCHES = [
    "run",
    "resume",
    "extend",
    "validate",
    "preview",
    "status",
    "front",
    "compare",
    "replay",
]
CATALOG = ["methods", "selectors", "models", "datasets", "cost", "doctor"]
PAGES = ["ui", "dashboard", "report", "figure"]
CLUSTER = ["submit", "stop", "logs"]
VERBS = [*SEARCHES, "export", "train", "mask", *PAGES, *CLUSTER, *CATALOG]


@pytest.fixture(autouse=True)
def _no_data_directory(monkeypatch):
    monkeypatch.delenv("BITFRONT_DATA", raising=False)


def call(capsys, *words, code=0):
    assert main(list(words)) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_every_verb_of_the_design_is_there():
    assert set(VERBS) <= set(build_parser().verbs)


@pytest.mark.parametrize("verb", find_verbs())
def test_every_verb_explains_itself(verb, capsys):
    with pytest.raises(SystemExit) as caught:
        main([verb, "--help"])
    assert caught.value.code == 0
    assert "usage: bitfront" in capsys.readouterr().out


def test_help_answers_in_under_half_a_second_and_imports_nothing_heavy():
    command = [sys.executable, "-m", "bitfront.cli", "--help"]
    times = []
    for _ in range(3):
        # Of the processor: what a busy machine adds is not ours.
        before = os.times()
        subprocess.run(command, check=True, capture_output=True)
        after = os.times()
        times.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
    assert min(times) < 0.5


@pytest.mark.parametrize("words", [["--help"], ["methods"], ["datasets"], ["status"]])
def test_verbs_that_need_no_training_import_neither_torch_nor_ray_nor_mlflow(words, tmp_path):
    program = (
        "import sys; from bitfront.cli import main\n"
        f"try: main({words!r})\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'ray', 'mlflow'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


def test_methods_are_listed_with_their_parameters(capsys):
    found = json.loads(call(capsys, "methods", "--json"))
    by_name = {m["name"]: m for m in found}
    assert {"fp", "bc", "bnn", "bnn+", "bnn++"} <= set(by_name)
    for method in found:
        assert set(method) >= {"name", "family", "paper", "levels", "params"}
        for param in method["params"].values():
            assert {"default", "range"} <= set(param)
    assert by_name["bnn++"]["params"]["mu_end"]["default"] == 30.0
    assert "bnn++" in call(capsys, "methods", "bnn*")
    assert "bc" not in call(capsys, "methods", "bnn*").split()


def test_what_a_dataset_is_stands_on_one_line_below_it_where_there_is_no_room(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = call(capsys, "datasets", "digits").splitlines()
    assert lines[1] == "  what"
    assert lines[3].startswith("digits ")
    assert lines[4].startswith("  Handwritten digits, 8x8 grey (Alpaydin")
    monkeypatch.setenv("COLUMNS", "140")
    assert "Handwritten digits, 8x8 grey" in call(capsys, "datasets", "digits").splitlines()[2]


def test_models_and_datasets_are_listed(capsys):
    models = {m["name"] for m in json.loads(call(capsys, "models", "--json"))}
    assert {"mlp", "cresnet", "cresnet20"} <= models
    datasets = {d["name"]: d for d in json.loads(call(capsys, "datasets", "--json"))}
    assert {"digits", "moons", "mnist", "fashion-mnist", "cifar10", "cifar100"} <= set(datasets)
    assert datasets["digits"]["available"]
    assert "torchvision" in datasets["cifar10"]["get"]


def test_a_dataset_is_here_when_its_folder_is(capsys, tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    found = json.loads(call(capsys, "datasets", "--data-dir", str(tmp_path), "--json"))
    assert {d["name"] for d in found if d["available"]} == {
        "cifar10",
        "digits",
        "moons",
        "moving-shapes",
    }


def test_cost_prints_the_per_layer_table_and_the_totals(capsys):
    report = json.loads(call(capsys, "cost", "cresnet20", "--plan", "B", "--json"))
    assert report["totals"]["flops"] == 1_933_312
    assert report["full_precision"]["flops"] == 41_414_656
    assert {"name", "level", "macs", "flops"} <= set(report["layers"][0])
    assert {"flops", "flops_pct", "ops64", "bops", "bytes"} <= set(report["totals"])
    text = call(capsys, "cost", "cresnet20", "--plan", "front:7")
    assert "63.55" in text
    assert "MixBin convention" in text
    assert "41.12" in call(capsys, "cost", "cresnet20", "--plan", "rear@40%")


def test_cost_keeps_the_layers_in_full_precision_that_it_is_told(capsys):
    told = ("cost", "mlp", "--shape", "1x8x8", "--plan", "B", "--json")
    levels = {}
    for option in ([], ["--keep-full", "layers.1"]):
        rows = json.loads(call(capsys, *told, *option))["layers"]
        levels[bool(option)] = {row["name"]: (row["level"], row["planned"]) for row in rows}
    assert levels[False]["layers.1"] == levels[True]["layers.2"] == ("B", True)
    assert levels[True]["layers.1"] == ("F", False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cost", "cresnet2"], "did you mean 'cresnet20'"),
        (["cost", "cresnet20", "--plan", "FB"], "has 2 letters, the model has 18"),
        (["cost", "cresnet20", "--plan", "frist:3"], "did you mean 'first'"),
        (["cost", "cresnet", "--set", "widht=3"], "did you mean 'width'"),
        (["front", "nothing"], "unknown search 'nothing'"),
        (["front", "nothing", "--csv", "--json"], "not allowed with"),
        (["run", "no-such.yaml"], "no such file"),
        (["run", "quickstrat"], "did you mean 'quickstart'"),
        (["validate", "quickstart", "--set", "task.epocs=1"], "did you mean 'epochs'"),
        (["train", "no-such.yaml"], "no such file"),
        (["replay", "cafebabe"], "no trial 'cafebabe'"),
        (["export", "../etc", "--knee"], "unknown search"),
        (["cost", "cresnet20", "--shape", "3x0x0"], "write it as 3x32x32"),
        (["run", "quickstart", "--trials", "0"], "--trials: give a whole number of at least 1"),
        (["validate", "quickstart", "--set", "task.optimizer.lr=.inf"], "task.optimizer.lr"),
        (["run", "quickstart", "--set", "task.dataset=cifar10"], "data directory"),
        (["run", "quickstart", "--home", "/dev/null/runs"], "cannot be written: Not a directory"),
        (["validate", "quickstart", "--set", "storage=shared"], "'shared' is no whole path"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(words, expected, capsys):
    said, _, message = call(capsys, *words, code=2).rpartition("error: ")
    # `run` and `validate` say what they are doing before they find the mistake.
    assert all(" ..." in line for line in said.splitlines())
    assert said == "" or words[0] in ("run", "validate")
    assert expected in message
    assert "Traceback" not in message


def test_validate_says_yes_to_the_quickstart(capsys):
    assert "valid" in call(capsys, "validate", "quickstart")
    assert json.loads(call(capsys, "validate", "--json"))["valid"] is True


def test_preview_tells_size_share_cost_and_time_and_starts_nothing(capsys, tmp_path):
    space = "{method: bnn, plan: {per: layer, prior: {stages.0.0.first.conv: F}}}"
    words = ["--set", f"space={space}", "--set", "limits.flops_pct=60"]
    report = json.loads(call(capsys, "preview", "quickstart", "--json", *words))
    assert report["points"] == 2**6
    assert 0 < report["feasible_share"] < 1
    assert report["layers"] == 6
    assert 0 < report["trial_seconds"][0] <= report["trial_seconds"][1]
    assert report["eta_seconds"] > 0
    text = call(capsys, "preview", "quickstart", *words)
    assert "64 points" in text
    assert report["priors"] == {"plan.stages.0.0.first.conv": "F (medium)"}
    assert "priors, which steer the search" in text
    assert f"flops_pct: of the network in full precision, {report['full_flops']:,.0f}" in text
    assert "nothing was started" in text
    assert not (tmp_path / "bitfront-runs").exists()


def test_doctor_passes_here_and_each_check_has_a_verdict(capsys):
    checks = json.loads(call(capsys, "doctor", "--json"))
    assert {c["verdict"] for c in checks} <= {"PASS", "WARN"}
    assert {"python", "torch", "searches", "tracking"} <= {c["name"] for c in checks}


def test_a_search_that_never_started_hides_no_other(capsys, tmp_path):
    folder = tmp_path / "bitfront-runs" / "half"
    call(capsys, "validate", "--json")
    config = json.loads(call(capsys, "validate", "--name", "half", "--json"))["config"]
    folder.mkdir(parents=True)
    (folder / "search.yaml").write_text(json.dumps(config))
    assert "half" in call(capsys, "status")
    assert json.loads(call(capsys, "front", "half", "--json"))["points"] == []
    (folder / "search.yaml").write_text("{")
    assert "damaged" in call(capsys, "front", "half", code=2)


def test_the_status_without_searches_says_how_to_start_one(capsys):
    assert "bitfront run" in call(capsys, "status")


def test_the_version_is_that_of_the_package(capsys):
    from importlib import metadata

    assert call(capsys, "--version").strip() == f"bitfront {metadata.version('bitfront')}"


def test_python_m_bitfront_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "bitfront", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout[:9]) == (0, "bitfront "), done.stderr


def test_the_package_is_importable_from_any_directory(tmp_path):
    command = [sys.executable, "-m", "bitfront.cli", "validate"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_broken_pipe_is_no_traceback():
    command = f"{sys.executable} -m bitfront.cli cost cresnet20 | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=Path.cwd())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["figur"], "unknown verb 'figur', did you mean 'figure'?"),
        (["trian", "recipe.yaml"], "unknown verb 'trian', did you mean 'train'?"),
        (["export", "x", "--budgt", "40%"], "unknown option '--budgt', did you mean '--budget'?"),
        (["run", "--tirals=3"], "did you mean '--trials'?"),
        (["ui", "--no-bowser"], "did you mean '--no-browser'?"),
        (["run", "a", "b"], "'b' is one word too many"),
        (["export"], "are required: search"),
        (["export", "x", "--epochs", "-3"], "--epochs: give a whole number of at least 1"),
        (["export", "x", "--epochs", "0"], "--epochs: give a whole number of at least 1"),
        (["export", "x", "--seeds", "0"], "--seeds: give a whole number of at least 1"),
        (["train", "x", "--workers", "0"], "--workers: give a whole number of at least 1"),
        (["train", "x", "--threads", "-1"], "--threads: give a whole number of at least 1"),
        (["train", "x", "--epochs", "many"], "at least 1, not 'many'"),
        (["submit", "--trials", "0", "--address", "x"], "--trials: give a whole number"),
        (["cost", "mlp", "--classes", "0"], "--classes: give a whole number of at least 1"),
        (["ui", "--port", "70000"], "--port: give a whole number from 0 to 65535"),
    ],
)
def test_a_wrong_word_on_the_command_line_gets_the_right_one(words, expected, capsys):
    message = call(capsys, *words, code=2)
    assert message.startswith("error: ")
    assert expected in message
    assert "usage:" not in message


def subparsers():
    parser = build_parser()
    return {verb: parser.verb_parser(verb) for verb in parser.verbs}


def test_every_whole_number_on_the_command_line_is_checked():
    for verb, sub in subparsers().items():
        assert not [a.option_strings for a in sub._actions if a.type is int], verb


def test_not_opening_a_browser_is_one_option_everywhere():
    for verb in ("ui", "dashboard"):
        parser = subparsers()[verb]
        assert "--no-browser" in parser.format_help()
        assert "--no-open" not in parser.format_help()
        for option in ("--no-browser", "--no-open"):
            assert build_parser().parse_args([verb, option]).no_browser
        assert not build_parser().parse_args([verb]).no_browser


@pytest.mark.parametrize(
    "words",
    [
        *([verb, "--help"] for verb in find_verbs()),
        ["--help"],
        ["methods"],
        ["models"],
        ["selectors"],
        ["datasets"],
        ["doctor"],
        ["preview", "quickstart"],
        ["cost", "cresnet20"],
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_80_columns(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.suppress(SystemExit):
        main(words)
    lines = capsys.readouterr().out.splitlines()
    assert lines
    # A path may be longer than any terminal is wide.
    assert not [line for line in lines if len(line) > 80 and len(line.split()) > 1]


@pytest.mark.parametrize("verb", ["methods", "models", "selectors", "datasets"])
def test_lists_are_broken_between_words_and_leave_out_none(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    everything = {w.rstrip("-") for w in call(capsys, verb).split()}
    monkeypatch.setenv("COLUMNS", "80")
    narrow = call(capsys, verb)
    assert "…" not in narrow
    long = {w for w in everything if len(w) > 30}
    assert everything - long - {w.rstrip("-") for w in narrow.split()} == set()


def test_optuna_writes_nothing_on_the_terminal(tmp_path):
    """In a process that uses it without a search, as reports and pages do."""
    program = (
        "from bitfront.search.results.view import SearchView\n"
        "from types import SimpleNamespace as S\n"
        "from bitfront.search.results.importance import importances\n"
        "trial = lambda i: S(state='complete', values={'q': i / 20}, method='bnn', plan='',\n"
        "                    params={'lr': i / 7, 'x': str(i % 3)})\n"
        "view = S(trials=[trial(i) for i in range(20)], layers_of=lambda t: [],\n"
        "         quality=S(name='q', maximize=True))\n"
        "assert importances(view)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr == ""


def test_every_use_of_optuna_is_silenced():
    """Whoever makes a study, or opens a storage, comes after `silence`, which `ledger.study` calls
    when it is imported."""
    folder = Path(__file__).parents[2] / "search"
    for path in folder.rglob("*.py"):
        text = path.read_text()
        if "create_study(" in text or "get_storage(" in text:
            assert "silence()" in text or "search.ledger.study import" in text, path.name
