"""A network of the user's own in their own training loop: the letters of a plan, the costs and the
training are those of a search over it."""

from __future__ import annotations

import importlib
import json
import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bitfront as bf
from bitfront.cli import main
from bitfront.search.config.checks.activations import unresponsive
from bitfront.spaces.costs import costs_of
from bitfront.terminal.own_data import data_text
from bitfront.trainables import packed
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.data import DATASETS, Arrays, Batches, in_order
from bitfront.trainables.own_code import parse
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.training import Training, search_data

NETS = '''
import torch
import torch.nn.functional as F
from torch import nn


class Waves(nn.Module):
    """In one dimension, with a shortcut and ReLUs, made in another order than it is used."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 3)
        self.side = nn.Conv1d(8, 16, 1, 2)
        self.b = nn.Conv1d(16, 16, 3, 1, 1)
        self.a = nn.Conv1d(8, 16, 3, 2, 1)
        self.norm_a, self.norm_b = nn.BatchNorm1d(16), nn.BatchNorm1d(16)
        self.act = nn.ReLU()
        self.into = nn.Conv1d(2, 8, 5, padding=2)

    def forward(self, x):
        x = self.act(self.into(x))
        y = self.norm_b(self.b(self.act(self.norm_a(self.a(x))))) + self.side(x)
        return self.out(self.act(y).mean(2))


class Mixed(nn.Module):
    """A transposed convolution, a layer that is used twice, a weight that two layers share, an
    attention."""

    def __init__(self):
        super().__init__()
        self.into = nn.Conv1d(2, 8, 3, padding=1)
        self.twice = nn.Conv1d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose1d(8, 8, 2, 2)
        self.there, self.back = nn.Linear(8, 8), nn.Linear(8, 8)
        self.back.weight = self.there.weight
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.tanh(self.twice(torch.tanh(self.twice(torch.tanh(self.into(x))))))
        x = torch.tanh(self.up(x)).transpose(1, 2)
        x = torch.tanh(self.back(torch.tanh(self.there(x))))
        return self.out(self.attend(x, x, x)[0].mean(1))


class Words(nn.Module):
    """A text classifier: it takes the numbers of words."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.conv = nn.Conv1d(16, 16, 3, padding=1)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        x = self.layer(self.embed(x))
        return self.out(F.relu(self.conv(x.transpose(1, 2))).mean(2))


def library():
    """A network of a library, whose layers have known names."""
    import torchvision

    net = torchvision.models.resnet18(num_classes=3)
    net.conv1 = nn.Conv2d(2, 64, 3)
    return net
'''
LETTERS = {
    "Waves": ["a", "b"],
    "Mixed": ["twice", "up", "there", "attend.in_proj", "attend.out_proj"],
    "Words": [*(f"layer.{n}" for n in ("self_attn.in_proj", "self_attn.out_proj", "linear1")),
              "layer.linear2", "conv"],
}  # fmt: skip
SHAPES = {"Waves": (2, 16), "Mixed": (2, 16), "Words": (12,)}


def signals():
    """300 waves of three frequencies in noise."""
    draws = torch.Generator().manual_seed(0)
    y = torch.randint(3, (300,), generator=draws)
    t = torch.arange(16) / 16 * 2 * torch.pi
    phase = torch.rand(300, 2, 1, generator=draws) * 6.3
    x = torch.sin((y[:, None, None] + 1) * t + phase)
    return x + 0.4 * torch.randn(300, 2, 16, generator=draws), y


def sentences():
    """300 sentences of 12 words out of 20, in which one of three words is more frequent."""
    draws = torch.Generator().manual_seed(0)
    y = torch.randint(3, (300,), generator=draws)
    x = torch.randint(3, 20, (300, 12), generator=draws)
    said = torch.rand(300, 12, generator=draws) < 0.3
    return torch.where(said, y[:, None], x), y


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("own")
    (made / "nets_of_mine.py").write_text(NETS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(made)
        yield made


@pytest.fixture(scope="module")
def nets(folder):
    return importlib.import_module("nets_of_mine")


@pytest.fixture(scope="module")
def task(folder, nets):
    """The task of a search over a network, settled and checked as a run would."""

    def made(name, data=None, **keys):
        x, y = data or (sentences() if name == "Words" else signals())
        parts = ((x[:200], y[:200]), (x[200:250], y[200:250]), (x[250:], y[250:]))
        keys = {"epochs": 2, "batch_size": 50, **keys}
        search = bf.Search(getattr(nets, name), parts, home=folder / "home", **keys)
        return search.load()[0].task

    return made


def trained(spec):
    train, validation = search_data(spec.task)
    trial = Training(spec, train, validation)
    while not trial.done:
        trial.epoch()
    return trial


# --- letters ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LETTERS)
def test_letters_mean_the_same_layers_as_in_a_search(nets, task, name):
    settled = task(name)
    searched = [layer.name for layer in task_cost_table(settled).plan_layers]
    assert searched == LETTERS[name]
    plan = "BF" * 3
    plan = plan[: len(searched)]
    made = getattr(nets, name)
    guessed, shaped = bf.binarize(made(), plan), bf.binarize(made(), plan, shape=SHAPES[name])
    for handle in (guessed, shaped):
        assert list(handle.layers["layer"]) == searched
        assert list(handle.layers["level"]) == list(plan)
    full = bf.binarize(made(), "W", binarize="all", keep_full=["out", searched[0]])
    keys = {"binarize": "all", "keep_full": ["out", searched[0]]}
    other = task_cost_table(settled.model_copy(update=keys))
    assert list(full.layers["layer"]) == [layer.name for layer in other.plan_layers]


@pytest.mark.parametrize("name", LETTERS)
@pytest.mark.parametrize(("method", "activations"), [("bnn", "norm"), ("react", "shift")])
def test_costs_are_those_of_the_search_the_command_and_the_file(
    nets, task, folder, name, method, activations, capsys, monkeypatch
):
    settled = task(name, activations=activations, methods=method)
    plan = "BFWBB"[: len(LETTERS[name])]
    spec = TrialSpec(task=settled, method=method, plan=plan)
    model, shape = getattr(nets, name)(), SHAPES[name]
    costs = bf.cost(model, plan, shape, method, activations=activations)
    assert costs == costs_of(spec)

    handle = bf.binarize(model, plan, method, activations=activations)
    dtype = torch.int64 if name == "Words" else torch.float32
    x = torch.ones(4, *shape, dtype=dtype)
    model(x)
    path = folder / f"{name}-{method}.safetensors"
    assert bf.save(model, path) == costs["bytes"]
    loaded = bf.load(path)
    with torch.no_grad():  # with gradients, torch computes attention in another order
        assert torch.equal(loaded(x), model(x))
    assert loaded.plan == handle.plan

    monkeypatch.chdir(folder)
    extents = "x".join(map(str, shape))
    scale = handle.method.scale
    command = ["cost", f"nets_of_mine.py:{name}", "--plan", plan, "--shape", extents, "--json"]
    assert main([*command, "--scale", scale, "--activations", activations]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["level"] for row in told["layers"] if row["name"] in LETTERS[name]] == list(plan)
    if not handle.method.shifts_inputs:
        assert told["totals"]["bytes"] == costs["bytes"]


def test_a_network_of_a_library_has_the_letters_of_its_name(nets, task):
    pytest.importorskip("torchvision")
    x, y = torch.randn(60, 2, 16, 16), torch.arange(60) % 3
    searched = task_cost_table(task("library", (x.repeat(5, 1, 1, 1), y.repeat(5)))).plan_layers
    handle = bf.binarize(nets.library(), "W")
    assert list(handle.layers["layer"]) == [layer.name for layer in searched]
    assert len(searched) == 16


def test_a_selected_plan_has_a_letter_per_layer_of_the_network(nets, folder):
    x, y = signals()
    parts = ((x[:200], y[:200]), (x[200:], y[200:]))
    plan = bf.select(nets.Mixed(), parts, "first", budget=0.8, level="W", home=folder / "home")
    assert len(plan) == len(bf.binarize(nets.Mixed(), plan).layers)


class Windows(nn.Module):
    """No shape can be guessed for it."""

    def __init__(self):
        super().__init__()
        self.into, self.inner, self.out = nn.Linear(9, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.out(
            self.inner(self.into(x.unfold(1, 9, 7)[:, :5])).reshape(len(x), 5, -1)[:, 0]
        )


def test_a_shape_that_cannot_be_guessed_is_asked_for():
    with pytest.raises(bf.UserError, match="no shape that was tried fits") as caught:
        bf.binarize(Windows(), "B")
    assert "shape=(3, 32, 32)" in caught.value.hint
    assert list(bf.binarize(Windows(), "B", shape=(40,)).layers["layer"]) == ["inner"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"plan": "BBB"}, "3 letters, the model has 2"),
        ({"shape": (5, 16)}, "inputs of shape 5x16 do not fit Waves"),
        ({"shape": (0, 16)}, "no shape"),
        ({"example": torch.zeros(3)}, "not a batch"),
        ({"keep_full": ["c"]}, "no layer is called 'c'"),
        ({"binarize": "bodi"}, "did you mean 'body'"),
        ({"activations": "nrom"}, "did you mean 'norm'"),
    ],
)
def test_a_mistake_is_one_line(nets, keys, message):
    with pytest.raises(bf.UserError, match=message) as caught:
        bf.binarize(nets.Waves(), **keys)
    assert "\n" not in caught.value.message


# --- training -----------------------------------------------------------------------------------


def by_hand(model, handle, train, spec):
    """The loop of a trial with a constant learning rate, written by hand."""
    optimizer = torch.optim.Adam(handle.parameters(), lr=0.01, fused=True)
    batches = Batches(train, 50, spec.seed, "none")
    steps = spec.task.epochs * len(batches)
    step = 0
    for _ in range(spec.task.epochs):
        model.train()
        for x, y in batches:
            handle.before_step(step / (steps - 1))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            step += 1
    handle.finish(in_order(train, 50))


@pytest.mark.parametrize(
    ("name", "activations"),
    [("Waves", "norm"), ("Waves", "shift"), ("Waves", "rprelu"), ("Mixed", "norm"),
     ("Words", "norm")],
)  # fmt: skip
def test_the_loop_of_a_trial_written_by_hand_gives_the_same_bits(nets, task, name, activations):
    keys = {"optimizer": {"name": "adam", "lr": 0.01}, "schedule": "constant"}
    settled = task(name, activations=activations, **keys)
    plan = "B" * len(LETTERS[name])
    spec = TrialSpec(task=settled, method="bnn++", params={"mu_end": 30.0}, plan=plan, seed=3)
    trial = trained(spec)
    train, _ = search_data(settled)

    torch.manual_seed(3)
    model = getattr(nets, name)()
    first = next(iter(in_order(train, 256)))[0]
    handle = bf.binarize(model, plan, "bnn++", activations=activations, example=first, mu_end=30)
    by_hand(model, handle, train, spec)

    ours, theirs = trial.model.state_dict(), model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_textbook_loop_is_as_accurate_as_a_trial(nets, task):
    """Over 3 seeds each; accuracies of one seed have a deviation of 0.05."""
    x, y = signals()
    settled = task("Waves", epochs=8, batch_size=20, optimizer={"name": "adam", "lr": 0.01})
    ours, theirs = [], []
    for seed in range(3):
        spec = TrialSpec(
            task=settled, method="bnn++", params={"mu_end": 30.0}, plan="BB", seed=seed
        )
        ours.append(trained(spec).history[-1]["val_accuracy"])
        torch.manual_seed(100 + seed)
        model = nets.Waves()
        handle = bf.binarize(model, "BB", "bnn++", mu_end=30)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        loader = DataLoader(TensorDataset(x[:200], y[:200]), 20, shuffle=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8 * len(loader))
        for step in range(8 * len(loader)):
            if step % len(loader) == 0:
                batches = iter(loader)
            inputs, targets = next(batches)
            handle.before_step(step / (8 * len(loader) - 1))
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        handle.finish()
        right = model(x[200:250]).argmax(1) == y[200:250]
        theirs.append(float(right.float().mean()))
    means = torch.tensor([ours, theirs]).mean(1)
    assert means.min() > 0.65
    assert abs(means[0] - means[1]) < 0.1


def test_shifts_start_from_the_first_batch_where_no_example_is_given(nets):
    x, _ = signals()
    models = [nets.Waves() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    bf.binarize(models[0], activations="shift", example=x[:50])
    bf.binarize(models[1], activations="shift")
    models[1].out.eval()
    models[1](x[:50])
    shifts = [model.a.input_quantizer.treatment.shift for model in models]
    assert torch.equal(*shifts)
    assert shifts[0].abs().sum() > 0
    assert not models[1].out.training


# --- examples that are integers -----------------------------------------------------------------


def test_token_numbers_reach_the_network_and_its_packed_file_as_integers(nets, task, tmp_path):
    settled = task("Words", epochs=6, batch_size=20, optimizer={"name": "adam", "lr": 0.01})
    assert DATASETS.get(settled.dataset).integers
    text = data_text(settled)
    assert "x 12 from 0 to 19 (integers)" in text
    train = search_data(settled)[0]
    assert isinstance(train, Arrays)
    assert train.x.dtype == torch.int64
    assert torch.equal(train.x, sentences()[0][:200])

    spec = TrialSpec(task=settled, method="bnn++", plan="WFWFB", seed=0)
    trial = trained(spec)
    assert trial.history[-1]["val_accuracy"] > 0.6
    path = tmp_path / "net.safetensors"
    assert packed.save(trial.network, spec, path, {}) == costs_of(spec)["bytes"]
    loaded, sentence = bf.load(path, trust=True), sentences()[0][250]
    batch = loaded.preprocess(sentence.tolist())
    assert batch.dtype == torch.int64
    assert torch.equal(batch, sentence[None])
    assert torch.equal(loaded(batch), trial.model.eval()(batch))


class Table(nn.Module):
    """Integers that are features, not the numbers of words."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("model", [Table, {"name": "mlp", "depth": 3, "width": 8}])
def test_integers_reach_a_network_that_takes_floats_as_floats(model, tmp_path):
    settled = bf.Search(model, (sentences(),), home=tmp_path, epochs=1).load()[0].task
    assert not DATASETS.get(settled.dataset).integers
    train = search_data(settled)[0]
    assert isinstance(train, Arrays)
    assert train.x.dtype == torch.float32


def test_rows_of_integers_among_rows_of_floats_are_floats(tmp_path):
    rows = [([1, 2, 3], 0), ([0.5, 2, 1], 1), ([4, 1, 1], 0), ([1, 2, 2.5], 1)] * 5
    model = {"name": "mlp", "depth": 3, "width": 8}
    settled = bf.Search(model, (rows,), home=tmp_path, epochs=1).load()[0].task
    train = search_data(settled)[0]
    assert isinstance(train, Arrays)
    assert (train.x == 0.5).any()


def test_words_that_the_network_does_not_know_are_one_line(nets, folder):
    x, y = sentences()
    search = bf.Search(nets.Words, ((x + 5, y),), home=folder / "home", epochs=1)
    with pytest.raises(bf.UserError, match="fails on examples of the data: IndexError"):
        unresponsive(search.load()[1])


def test_floats_for_a_network_that_takes_words_are_refused_with_its_line(nets, folder):
    x, y = sentences()
    search = bf.Search(nets.Words, ((x.float(), y),), home=folder / "home", epochs=1)
    with pytest.raises(bf.UserError, match=r"nets_of_mine\.py:\d+: .*fails on 12"):
        search.validate()


def test_attacks_are_not_for_integers(nets, folder):
    attack = {"eps": 0.1, "train": "pgd"}
    search = bf.Search(nets.Words, (sentences(),), home=folder / "home", epochs=1, attack=attack)
    with pytest.raises(bf.UserError, match="attacks change pixels"):
        search.validate()


class Triangle:
    """A method of the user's own."""

    def __init__(self, reach=1.0):
        self.reach = reach

    def forward(self, w):
        return torch.where(w >= 0, 1.0, -1.0)

    def backward(self, w):
        return (1 - w.abs() / self.reach).clamp_min(0)


def test_a_method_of_ones_own_is_for_a_loop_of_ones_own(nets, monkeypatch, tmp_path):
    monkeypatch.setenv("BITFRONT_HOME", str(tmp_path))
    model = nets.Waves()
    handle = bf.binarize(model, "B", Triangle, reach=2.0)
    assert handle.method.values["reach"] == 2.0
    model(signals()[0][:4]).sum().backward()
    assert model.a.parametrizations.weight.original.grad.abs().sum() > 0

    bf.save(model, tmp_path / "net.safetensors")
    loaded = bf.load(tmp_path / "net.safetensors")
    assert parse(loaded.spec.method).name == "Triangle"
    assert parse(loaded.spec.method).digest
    assert torch.equal(loaded(signals()[0]), model(signals()[0]))


class OptimizedModule(nn.Module):
    """What torch.compile returns, as far as we know it."""

    def __init__(self, module):
        super().__init__()
        self._orig_mod = module


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda nets: bf.binarize(OptimizedModule(nets.Waves())), "compiled already"),
        (lambda nets: bf.Search({"width": 3}, "digits"), "a dict names the network"),
        (lambda nets: bf.Search(partial(nets.Waves), "digits"), r"functools\.partial has no name"),
        (lambda nets: bf.cost(nets.Waves, "B", 6), "cost: type is no network"),
        (lambda nets: bf.cost(nets.Waves(), "B", 6), "inputs of shape 6 do not fit"),
        (lambda nets: bf.binarize(nets.Waves(), "BBB"), "one letter for each of: a, b"),
    ],
)
def test_a_mistake_of_another_kind_is_one_line_too(nets, call, message):
    with pytest.raises(bf.UserError) as caught:
        call(nets)
    assert re.search(message, str(caught.value))


class Maps(nn.Module):
    """A class for every pixel."""

    def __init__(self, num_classes):
        super().__init__()
        self.into, self.inner = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 1), nn.Conv2d(8, num_classes, 1)

    def forward(self, x):
        return self.out(torch.relu(self.up(torch.relu(self.inner(torch.relu(self.into(x)))))))


def test_a_network_may_return_a_class_for_every_pixel_where_the_loss_is_ones_own(tmp_path):
    def overlap(outputs, targets):
        found, there = outputs.argmax(1) == 1, targets == 1
        return float((found & there).sum() / (found | there).sum().clamp_min(1))

    x = torch.randn(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    y = (nn.functional.avg_pool2d(x, 3, 1, 1)[:, 0] > 0).long()
    data = {"train": (x, y), "loss": nn.functional.cross_entropy, "metric": {"overlap": overlap}}
    keys = {"epochs": 3, "batch_size": 10, "optimizer": {"name": "adam", "lr": 0.01}}
    settled = bf.Search(Maps, data, home=tmp_path, **keys).load()[0].task
    assert DATASETS.get(settled.dataset).classes == 2
    plan = "B" * len(task_cost_table(settled).plan_layers)
    history = trained(TrialSpec(task=settled, method="bnn", plan=plan, seed=0)).history
    assert plan == "BB"
    assert history[-1]["val_overlap"] > 0.5
    with pytest.raises(bf.UserError, match="returns 2x8x8 numbers per example, the data have 2"):
        bf.Search(Maps, (x, y[:, 0, 0]), home=tmp_path).validate()
