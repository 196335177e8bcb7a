"""A mistake in a search YAML is found before anything starts, and the message says where."""

import contextlib
import json
import re
import subprocess
import sys
from typing import get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from bitfront.cli import main
from bitfront.search.config.cautions import cautions
from bitfront.search.config.errors import ConfigError
from bitfront.search.config.load import load, load_text, messages
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.source import parse
from bitfront.search.config.space import build_space, read_space
from bitfront.trainables.errors import UserError


def problem(make_config, *assignments, text=None):
    with pytest.raises(UserError) as caught:
        make_config(*assignments, **({"text": text} if text else {}))
    return str(caught.value)


def test_a_typo_names_file_line_key_and_the_nearest_word(make_config, tiny_yaml):
    text = tiny_yaml.replace("  method:", "  methd:")
    line = text.splitlines().index("  methd: [bnn, bnn++]") + 1
    assert f"tiny.yaml:{line} space.methd: unknown key, did you mean 'method'?" in problem(
        make_config, text=text
    )


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("task.epocs=3", "task.epocs: unknown key, did you mean 'epochs'?"),
        ("task.epochs=many", "task.epochs: should be a whole number, got 'many'"),
        ("task.epochs=0", "task.epochs: should be at least 1"),
        ("task.dataset=digit", "task.dataset: unknown dataset 'digit', did you mean 'digits'?"),
        ("task.model.name=mpl", "unknown model 'mpl', did you mean 'mlp'?"),
        ("task.model.widht=3", "task.model.widht: unknown key, did you mean 'width'?"),
        ("task.model.width=0", "task.model.width: 0 is outside 1..65536"),
        ("task.optimizer.lr=-1", "task.optimizer.lr: should be greater than 0"),
        ("task.optimizer.name=adm", "'adm' is not known, did you mean 'adam'?"),
        ("space.method=bnm", "space.method: unknown method 'bnm', did you mean 'bnn'?"),
        ("space.plan={per: leyer}", "space.plan.per: 'leyer' is not known, did you mean 'layer'?"),
        ("space.plan={per: layer, levels: [F, X]}", "'X' is no level"),
        ("space.plan=FB", "'FB' has 2 letters, the model has 4 layers"),
        ("space.bnn++.mu_edn=3", "space.bnn++.mu_edn: unknown key, did you mean 'mu_end'?"),
        ("space.bnn+.mu=3", "method bnn+ is not among space.method"),
        ("space.bnn++.mu_end=-3", "-3 is outside"),
        ("space.optimizer.lr={float: [1, 0.1]}", "low 1 is above high 0.1"),
        ("space.optimizer.lr={float: [0, 0.1], log: true}", "a log range starts above 0"),
        ("space.optimizer.lr={flaot: [0, 0.1]}", "unknown kind 'flaot', did you mean 'float'?"),
        ("space.optimizer.lr={float: [-1, 0.1]}", "should be greater than 0, got -1.0"),
        ("space.optimizer.lr={float: [0.1]}", "give two numbers"),
        ("space.batch_size={choice: []}", "at least one value"),
        ("objectives.acuracy=max", "objectives.acuracy: unknown key"),
        ("objectives.val_accuracy=up", "'up' is not known"),
        ("limits.flop=3", "limits.flop: unknown key, did you mean 'flops'?"),
        ("limits.flops={min: 9, max: 3}", "min is above max"),
        ("search.sampler=tpee", "'tpee' is not known, did you mean 'tpe'?"),
        ("search.trials=0", "search.trials: should be at least 1"),
        ("limits.flops_pct='40%'", "limits.flops_pct: should be a number or keys and values"),
        ("limits.flops_pct='40%'", "got '40%': write 40"),
        ("limits=[40]", "limits: should be keys and values, got a list"),
        ("space.lr=0.1", "space.lr: unknown key, did you mean 'optimizer.lr'?"),
        ("space.kind=none", "did you mean 'loss.distill.kind'?"),
        ("objectives.val_accuracy=min", "min looks for the worst networks, write max"),
        ("objectives.flops=max", "max looks for the worst networks, write min"),
        ("resources.gpus=some", "resources.gpus: should be a number or 'auto', got 'some'"),
        ("search.early_stopping=maybe", "should be true or false or keys and values"),
        ("name=3", "name: should be text, got 3: put it in quotes"),
        ("task.optimizer.lr='0,1'", "should be a number, got '0,1': write 0.1"),
        ("resources.cpu=1", "resources.cpu: unknown key, did you mean 'cpus'?"),
        ("tracking.url=x", "tracking.url: unknown key, did you mean 'uri'?"),
        ("name=../up", "letters, digits"),
        ("name=mlflow.db", "name: 'mlflow.db': bitfront keeps something else under this name"),
        ("name=mlartifacts", "bitfront keeps something else under this name"),
        ("name=pretrained", "bitfront keeps something else under this name"),
        ("search.trials=true", "search.trials: should be a whole number, got true"),
        ("search.confirm=false", "search.confirm: should be a number, got false"),
        ("task.optimizer.lr=true", "task.optimizer.lr: should be a number, got true"),
        ("task.subset=true", "task.subset: should be a whole number, got true"),
        ("resources.gpus=true", "resources.gpus: should be a number, got true"),
        ("space.epochs=[true, 3]", "space.epochs: should be a whole number, got true"),
        ("search.trials=1:30", "search.trials: should be a whole number, got '1:30'"),
        ("space.optimizer.lr=1:30.5", "should be a number, got '1:30.5'"),
        ("space.epochs={int: [1, 3], step: true}", "step: should be a whole number, got true"),
        ("space.optimizer.lr={float: 3}", "space.optimizer.lr.float: give a list"),
        ("space.optimizer.lr={float: [0.1, 1], log: 1}", "lr.log: should be true or false, got 1"),
        ("space.optimizer.lr={float: [0.1, 1], lgo: true}", "lr.lgo: unknown key, did you mean"),
        ("space.epochs={int: [1, 2.5]}", "space.epochs.int: whole numbers, got [1, 2.5]"),
        ("space.batch_size={choice: [[1]]}", "[1] is not a single value"),
    ],
)
def test_each_mistake_is_named(make_config, assignment, expected):
    assert expected in problem(make_config, assignment)


def test_an_impossible_limit_says_the_cheapest_reachable_cost(make_config, make_space):
    message = problem(make_config, "limits.flops_pct=1")
    assert "no point of the space has flops_pct <= 1; the cheapest reachable is" in message
    cheapest = float(message.rsplit(" ", 1)[1])
    make_config(f"limits.flops_pct={cheapest + 0.01}")


def test_a_misspelt_objective_is_one_mistake(make_config):
    with pytest.raises(ConfigError) as caught:
        make_config("objectives={val_acuracy: max, flops: min}")
    (told,) = caught.value.problems
    assert "unknown key, did you mean 'val_accuracy'?" in told


def test_digits_of_other_scripts_are_not_called_a_number_with_a_unit(make_config):
    told = problem(make_config, "task.epochs=\u0663")
    assert told == "--set task.epochs: should be a whole number, got '\u0663'"


def test_loading_changes_nothing_it_was_given(make_space):
    config, space = make_space("task.pretrain=2", "task.attack={eps: 8/255}")
    again = config.model_copy(deep=True)
    assert space.task == config.task
    assert build_space(config) == space
    assert config == again


def test_a_space_is_built_once(monkeypatch, tmp_path, tiny_yaml):
    built = []

    def counted(config, problems):
        built.append(config.name)
        return read_space(config, problems)

    monkeypatch.setattr("bitfront.search.config.load.read_space", counted)
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny_yaml)
    assert main(["preview", str(file), "--rehearse"]) == 0
    assert built == ["tiny"]


@pytest.mark.parametrize("mistake", ["task.epocs=3", "search.trails=true", "limits=[3]"])
def test_a_mistake_is_reported_without_torch(mistake, tmp_path, tiny_yaml):
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny_yaml)
    program = (
        "import sys; from bitfront.cli import main\n"
        f"code = main(['validate', {str(file)!r}, '--set', {mistake!r}])\n"
        "assert not {'torch', 'ray', 'mlflow'} & set(sys.modules)\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert f"--set {mistake.partition('=')[0]}: " in done.stderr


def test_all_mistakes_of_one_kind_are_listed_at_once(make_config):
    with pytest.raises(ConfigError) as caught:
        make_config("task.epocs=1", "search.trails=2")
    assert len(caught.value.problems) == 2


def test_mistakes_of_all_kinds_are_listed_at_once(make_config):
    with pytest.raises(ConfigError) as caught:
        make_config(
            "task.epochs=-1",
            "task.dataset=digit",
            "search.trails=2",
            "space.method=[bnnn]",
            "limits.flps=3",
            "objectives={val_acuracy: max, flops: min}",
            "name=a/b",
        )
    named = {line.partition(":")[0].removeprefix("--set ") for line in caught.value.problems}
    assert named == {
        "task.epochs",
        "task.dataset",
        "search.trails",
        "space.method",
        "limits.flps",
        "objectives.val_acuracy",
        "name",
    }


def test_code_that_is_missing_hides_no_other_mistake(make_config):
    with pytest.raises(ConfigError) as caught:
        make_config("task.model=nowhere.py:Net", "limits.flps=3", "task.dataset=digit")
    assert len(caught.value.problems) == 3


def test_a_key_given_twice_is_an_error(make_config, tiny_yaml):
    message = problem(make_config, text=tiny_yaml + "name: again\n")
    assert f"tiny.yaml:{len(tiny_yaml.splitlines()) + 1} name: the key is given twice" in message


def test_broken_yaml_names_the_line(make_config):
    assert "tiny.yaml:2 not valid YAML" in problem(
        make_config, text="name: a\ntask: ]\nspace: {}\n"
    )


def test_a_missing_key_is_named(make_config):
    assert "task: is missing" in problem(make_config, text="name: a\n")


def test_numbers_in_scientific_notation_are_numbers(make_config):
    config = make_config("task.optimizer.lr=1e-3")
    assert config.task.optimizer.lr == pytest.approx(1e-3)


def test_overrides_reach_their_keys(make_space):
    config, space = make_space("task.epochs=7", "space.optimizer.lr=0.5", "limits.flops_pct=60")
    assert config.task.epochs == 7
    assert config.limits["flops_pct"].max == 60
    assert space.overrides["optimizer.lr"].values == (0.5,)


def test_an_override_of_a_model_given_by_name_keeps_the_name(make_config, tiny_yaml):
    text = tiny_yaml.replace("{name: mlp, depth: 5, width: 16}", "mlp")
    config = make_config("task.model.width=8", text=text)
    assert (config.task.model.name, config.task.model.params) == ("mlp", {"width": 8})


def test_an_override_without_a_value_is_an_error(make_config):
    assert "write it as key=value" in problem(make_config, "task.epochs")


def test_a_dump_reads_back_to_the_same_configuration(make_config):
    config = make_config("limits.flops_pct=60")
    again = SearchConfig.model_validate(yaml.safe_load(config.dump()))
    assert again == config


def test_a_schedule_is_short_for_its_parts(make_space):
    _, space = make_space(
        "space.bnn++.mu={schedule: {from: 5, to: {float: [10, 100]}, until: 0.8, shape: cosine}}"
    )
    parts = space.method_params["bnn++"]
    assert parts["mu_start"].values == (5,)
    assert (parts["mu_end"].low, parts["mu_end"].high) == (10, 100)
    assert parts["mu_until"].values == (0.8,)
    assert parts["mu_shape"].values == ("cosine",)


def test_crop_flip_on_inputs_that_are_no_images_is_an_error(make_config):
    message = problem(
        make_config, "task.dataset=moons", "task.augmentation=crop-flip", "task.subset=100"
    )
    assert "task.augmentation" in message


def test_a_network_for_images_refuses_points(make_config):
    assert "takes images" in problem(
        make_config, "task.dataset=moons", "task.model={name: cresnet, depth: 8}"
    )


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_a_clear_error(text):
    with contextlib.suppress(UserError):
        load_text(text, "x.yaml")


# --- what trials start from ---------------------------------------------------------------------


@pytest.fixture
def weights(make_config, tmp_path):
    """A checkpoint of the tiny search's network."""
    import torch

    from bitfront.trainables.models import build_model

    path = tmp_path / "weights.pt"
    torch.save(build_model("mlp", {"depth": 5, "width": 16}, (1, 8, 8), 10).state_dict(), path)
    return path


def test_pretraining_keeps_the_settings_the_task_is_written_with(make_space):
    _, space = make_space("task.pretrain=2", "space.optimizer.lr=0.03")
    spec = space.walk(lambda name, domain: domain.values[0] if name == "method" else "F")
    assert spec.task.optimizer.lr == 0.03
    assert spec.task.pretrain.optimizer.lr == 0.01
    assert spec.task.pretrain.epochs == 2


def test_end_to_end_and_fine_tuning_can_be_searched(make_space):
    import random

    config, space = make_space("space.pretrain.epochs=[0, 4]")
    assert config.task.pretrain.optimizer.lr == 0.01
    rng = random.Random(0)
    drawn = {space.random_point(rng).task.pretrain.epochs for _ in range(20)}
    assert drawn == {0, 4}


def test_a_checkpoint_is_known_by_what_is_in_it(make_config, weights, tmp_path):
    from bitfront.search.session.preparation import differences

    one = make_config(f"task.pretrain={weights}")
    moved = tmp_path / "moved.pt"
    moved.write_bytes(weights.read_bytes())
    assert one.task.pretrain.sha256
    assert not differences(one, make_config(f"task.pretrain.checkpoint={moved}"))
    with moved.open("ab") as file:
        file.write(b"more")
    other = make_config(f"task.pretrain.checkpoint={moved}")
    assert [d.partition(":")[0] for d in differences(one, other)] == ["task.pretrain.sha256"]


def test_a_checkpoint_may_be_in_the_data_directory(make_space, weights, tmp_path, monkeypatch):
    """A search that starts from public weights is valid and can be looked at without them; only a
    run wants them."""
    from bitfront.search.session.preparation import differences, fetched

    monkeypatch.delenv("BITFRONT_DATA", raising=False)
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "a.pt").write_bytes(weights.read_bytes())
    one, _ = make_space(f"task.pretrain={weights}")
    named = ["task.pretrain=data:nets/a.pt", f"task.pretrain.sha256={one.task.pretrain.sha256}"]
    config, space = make_space(*named)
    assert config.task.pretrain.checkpoint == "data:nets/a.pt"
    with pytest.raises(UserError, match=r"DIR/nets/a\.pt, which is not there"):
        fetched(config, space, tmp_path)
    there, space = make_space(*named, f"task.data_dir={tmp_path}")
    assert there.task.pretrain.checkpoint == str(tmp_path / "nets" / "a.pt")
    assert fetched(there, space, tmp_path) == (there, space)
    assert not differences(one, there)
    monkeypatch.setenv("BITFRONT_DATA", str(tmp_path))
    assert make_space(*named)[0].task.pretrain.checkpoint == str(tmp_path / "nets" / "a.pt")
    with pytest.raises(ConfigError, match="its sha256 differs"):
        make_space("task.pretrain=data:nets/a.pt", "task.pretrain.sha256=abc")


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        (["task.pretrain=-1"], "task.pretrain.epochs: should be at least 0"),
        (["task.pretrain.epoch=2"], "task.pretrain.epoch: unknown key, did you mean 'epochs'?"),
        (["task.pretrain=nowhere.pt"], "nowhere.pt: no such file"),
        (["task.pretrain=WEIGHTS", "space.model.width=[16, 8]"], "no weight of the network"),
        (["task.pretrain=WEIGHTS", "task.pretrain.sha256=abc"], "its sha256 differs"),
        (["space.pretrain.epochs=[0, -2]"], "should be at least 0, got -2"),
    ],
)
def test_a_start_that_cannot_be_is_found_before_anything_starts(
    make_config, weights, assignments, expected
):
    given = [a.replace("WEIGHTS", str(weights)) for a in assignments]
    assert expected in problem(make_config, *given)


def test_a_search_may_switch_its_teacher_on_and_off(tmp_path):
    text = """
task: {dataset: digits, model: {name: tinyvit, depth: 1, width: 16, heads: 2}, pretrain: 2}
space:
  method: bnn
  plan: W
  loss.distill.kind: [none, logits, bibert]
  model.attention_norm: search
"""
    path = tmp_path / "s.yaml"
    path.write_text(text)
    config, _ = load(path)
    assert config.task.loss.distill.teacher == "pretraining"
    path.write_text(text.replace(", pretrain: 2", ""))
    with pytest.raises(ConfigError, match="no full-precision pretraining to learn from"):
        load(path)
    path.write_text(text.replace("bibert]", "biberd]"))
    with pytest.raises(ConfigError, match=r"loss\.distill\.kind: 'biberd'"):
        load(path)


def test_a_teacher_is_a_file_that_is_there(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        "task:\n  dataset: digits\n  model: mlp\n"
        "  loss: {distill: {kind: logits, teacher: nowhere.pt}}\n"
        "space: {method: bnn, plan: W}\n"
    )
    with pytest.raises(
        ConfigError, match=r"s.yaml:4 task.loss.distill: .*nowhere.pt: no such file"
    ):
        load(path)


# Words of the schema's own language, and the classes behind the keys.
FOREIGN = ("Input should", "valid dictionary", "instance of", "NoneType", "Value error", "parse")
WRONG = ("40%", 3.5, -1, 0, True, None, [], [1], {}, {"a": 1}, "x" * 5000, 10**400, {3: 4})


def models_of(model, path=()):
    """(path, model) of every mapping of the schema."""
    yield path, model
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            for each in (kind, *get_args(kind)):
                if isinstance(each, type) and issubclass(each, BaseModel):
                    yield from models_of(each, (*path, name))


def replaced(data, path, value):
    """The data with another value at that key, everything on the way made."""
    copy = node = {**data}
    for part in path[:-1]:
        below = node.get(part)
        node[part] = {**below} if isinstance(below, dict) else {}
        node = node[part]
    node[path[-1]] = value
    return copy


def test_no_message_is_in_the_words_of_the_schema(tiny_yaml):
    """Every key of every mapping with every kind of wrong value."""
    mappings = list(models_of(SearchConfig))
    classes = {model.__name__ for _, model in mappings}
    assert {"Limit", "SearchConfig", "Task", "PretrainSpec"} <= classes
    told = 0
    for path, model in mappings:
        for name in (*model.model_fields, "unknown"):
            for value in WRONG:
                source = parse(tiny_yaml, "tiny.yaml")
                source.data = replaced(source.data, (*path, name), value)
                try:
                    SearchConfig.model_validate(source.data)
                except ValidationError as error:
                    problems = messages(error, source)
                    assert problems
                    for text in problems:
                        told += 1
                        assert not [word for word in FOREIGN if word in text], text
                        assert not [c for c in classes if re.search(rf"\b{c}\b", text)], text
                        assert "something else" not in text
                        assert len(text) < 500, text
    assert told > 500


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"])
def test_an_empty_file_is_called_empty(text):
    with pytest.raises(UserError) as caught:
        parse(text, "mine.yaml")
    assert caught.value.message == "mine.yaml: the file is empty"
    assert "task.dataset" in caught.value.hint


def test_mistakes_of_task_objectives_and_space_are_told_in_one_round(make_config):
    wrong = [
        "objectives={val_acuracy: max, flops: min}",
        "space.optimizer.lrr=0.1",
        "space.bnn++.mu_end={float: [100, 10]}",
        "space.model.widht=[4, 8]",
    ]
    with pytest.raises(ConfigError) as caught:
        make_config(*wrong)
    assert len(caught.value.problems) == 4
    told = caught.value.message
    for word in ("val_acuracy", "optimizer.lrr", "bnn++.mu_end", "model.widht"):
        assert word in told


def test_a_method_that_is_gone_is_called_so_and_not_a_typo(make_config):
    gone = ["space.method=[bnn, cosine-ste]", "space.cosine-ste.scale=layer"]
    with pytest.raises(ConfigError, match="unknown method 'cosine-ste'"):
        make_config(*gone)


def test_what_is_no_mapping_is_told_without_names_of_types():
    for text, what in (("[1]", "a list"), ("words", "a single value")):
        with pytest.raises(UserError, match=f"not {what}"):
            parse(text, "mine.yaml")


def test_what_is_probably_not_meant_is_a_warning(make_space):
    assert cautions(*make_space()) == []
    (told,) = cautions(*make_space("task.subset=5000"))
    assert told == "task.subset: 5,000 examples of digits, which has 1,438: all of them are used"
    for plan in ("{per: layer, levels: F}", "{per: layer, levels: [F]}", "{per: stage, levels: B}"):
        (told,) = cautions(*make_space(f"space.plan={plan}"))
        assert "the plan decides nothing" in told


@pytest.mark.parametrize("words", [["validate"], ["preview"], ["run", "--dry-run"]])
def test_warnings_are_shown_before_anything_starts(words, capsys, tmp_path, tiny_yaml):
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny_yaml)
    assert main([*words, str(file), "--set", "task.subset=5000", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("warning: task.subset: 5,000")
    assert json.loads(captured.out)


def test_a_wrong_name_of_the_option_is_not_blamed_on_the_file():
    text = "task: {dataset: digits, model: mlp}\nname: fine\n"
    with pytest.raises(UserError, match=r"^--name: '\.\./x': letters"):
        load_text(text, name="../x")
