"""Networks without a search: bf.binarize, bf.save, bf.load, bf.cost."""

import gc
import importlib
import weakref

import pytest
import torch
from torch import nn

import bitfront as bf
from bitfront.cli import main
from bitfront.trainables.data import Batches, in_order
from bitfront.trainables.models import build_model
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training import Training, search_data


def small(width=8):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.Hardtanh(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.Hardtanh(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.Flatten(),
        nn.Linear(width * 36, 2),
    )


@pytest.fixture
def examples():
    torch.manual_seed(1)
    x = torch.randn(64, 3, 6, 6)
    return x, (x.mean((1, 2, 3)) > 0).long()


def fit(model, handle, optimizer, examples, steps=30):
    x, y = examples
    model.train()
    for step in range(steps):
        handle.before_step(step / (steps - 1))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y) + handle.penalty()
        loss.backward()
        optimizer.step()
    handle.finish()
    return float((model(x).argmax(1) == y).float().mean())


def test_a_textbook_loop_trains_a_binary_network(examples):
    model = small()
    handle = bf.binarize(model, plan="B", method="bnn++", mu_end=30)
    assert handle.plan == "BB"
    accuracy = fit(model, handle, torch.optim.Adam(handle.parameters(), 3e-3), examples)
    assert accuracy > 0.8
    for name in ("3", "6"):
        assert len(model.get_submodule(name).weight.unique()) == 2
    assert len(model[0].weight.unique()) > 2


@pytest.mark.parametrize("method", ["bop", "bayesbinn", "bmd", "lr-net"])
def test_a_method_with_an_optimizer_of_its_own_works_attached(method, examples):
    model = small()
    handle = bf.binarize(model, method=method, examples=64)
    optimizer = handle.attach(torch.optim.Adam(handle.parameters(), 3e-3))
    before = model.get_submodule("3").weight.detach().clone()
    fit(model, handle, optimizer, examples)
    assert not torch.equal(before, model.get_submodule("3").weight)
    assert len(model.get_submodule("3").weight.abs().unique()) == 1


def test_a_method_that_begins_with_real_weights_ends_with_binary_ones(examples):
    model = small()
    handle = bf.binarize(model, method="bop", real_share=0.5)
    optimizer = handle.attach(torch.optim.Adam(handle.parameters(), 3e-3))
    given = len(optimizer.param_groups[0]["params"])
    assert handle.own_optimizer is None
    fit(model, handle, optimizer, examples)
    assert handle.own_optimizer is not None
    assert len(optimizer.param_groups[0]["params"]) == given - 2
    assert len(model.get_submodule("3").weight.unique()) == 2


def test_the_optimizer_of_a_method_follows_the_schedule_of_the_users(examples):
    model = small()
    handle = bf.binarize(model, method="bmd", lr=0.02)
    optimizer = handle.attach(torch.optim.Adam(handle.parameters(), 3e-3))
    optimizer.param_groups[0]["lr"] = 3e-4
    handle.before_step(0.5)
    assert handle.own_optimizer.param_groups[0]["lr"] == pytest.approx(0.002)


def test_before_step_asks_for_the_optimizer_where_a_method_needs_it():
    handle = bf.binarize(small(), method="bop")
    with pytest.raises(bf.UserError, match="optimizer of its own") as caught:
        handle.before_step(0.0)
    assert "handle.attach" in caught.value.hint


def test_the_loop_of_a_trial_written_by_hand_gives_the_same_bits():
    task = Task.model_validate(
        {
            "dataset": "digits",
            "model": {"name": "mlp", "depth": 4, "width": 16},
            "epochs": 2,
            "batch_size": 50,
            "subset": 200,
            "optimizer": {"name": "adam", "lr": 0.01},
            "schedule": "constant",
            "keep": "last",
        }
    )
    spec = TrialSpec(task=task, method="bnn++", params={"mu_end": 30.0}, plan="BBB", seed=3)
    train, validation = search_data(task)
    trial = Training(spec, train, validation)
    while not trial.done:
        trial.epoch()

    torch.manual_seed(3)
    model = build_model("mlp", {"depth": 4, "width": 16}, (1, 8, 8), 10)
    handle = bf.binarize(model, "BBB", "bnn++", mu_end=30)
    optimizer = torch.optim.Adam(handle.parameters(), lr=0.01, fused=True)
    batches = Batches(train, 50, 3, "none")
    step, steps = 0, 2 * len(batches)
    for _ in range(2):
        model.train()
        for x, y in batches:
            handle.before_step(step / (steps - 1))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            step += 1
    handle.finish(in_order(train, 50))

    ours, theirs = trial.model.state_dict(), model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_finish_estimates_norms_for_the_hard_weights_from_the_last_inputs(examples):
    model = small()
    handle = bf.binarize(model, method="bnn++", mu_end=2)
    optimizer = torch.optim.Adam(handle.parameters(), 3e-3)
    fit(model, handle, optimizer, examples)
    means = [model[7].running_mean.clone()]
    handle.finish([examples])
    means.append(model[7].running_mean)
    assert torch.allclose(*means, atol=1e-6)
    assert not handle._inputs


def test_a_saved_network_computes_the_same_when_it_is_loaded_into_a_new_one(tmp_path, examples):
    model, (x, _) = small(), examples
    handle = bf.binarize(model)
    fit(model, handle, torch.optim.Adam(handle.parameters(), 3e-3), examples, steps=5)
    size = bf.save(model, tmp_path / "net.safetensors")
    assert size < 4 * sum(p.numel() for p in model.parameters())
    net = bf.load(tmp_path / "net.safetensors", model=small())
    assert torch.equal(net(x), model(x))
    assert net.plan == "BB"
    assert not net.training


def test_a_file_that_does_not_say_how_its_network_is_made_says_what_to_pass(tmp_path, examples):
    model = small()
    bf.binarize(model)
    model(examples[0])
    bf.save(model, tmp_path / "net.safetensors")
    with pytest.raises(bf.UserError, match="class Sequential") as caught:
        bf.load(tmp_path / "net.safetensors")
    assert "net.safetensors', model=Sequential(...))" in caught.value.hint
    assert "damaged" not in str(caught.value)


NETS = """
from torch import nn

class Body(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(108, width), nn.BatchNorm1d(width), nn.Hardtanh(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.Hardtanh(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.Hardtanh(), nn.Linear(width, 2))

    def forward(self, x):
        return self.layers(x)

class Whole(Body):
    def __init__(self):
        super().__init__(8)
"""


def test_a_class_of_a_file_is_made_again_where_it_takes_no_arguments(
    tmp_path, examples, monkeypatch, capsys
):
    (tmp_path / "nets_to_save.py").write_text(NETS)
    monkeypatch.syspath_prepend(tmp_path)
    nets = importlib.import_module("nets_to_save")
    x, path = examples[0], tmp_path / "net.safetensors"
    for model in (nets.Whole(), nets.Body(8)):
        bf.binarize(model)
        model(x)
        bf.save(model, path)
        if isinstance(model, nets.Whole):
            assert torch.equal(bf.load(path)(x), model(x))
    with pytest.raises(bf.UserError, match="class Body") as caught:
        bf.load(path)
    assert "model=Body(...)" in caught.value.hint
    assert torch.equal(bf.load(path, model=nets.Body(8))(x), model(x))
    (made,) = bf.deploy(path, 5, model=nets.Body(8), c=tmp_path / "net-c")
    assert (made.path / "net.c").is_file()
    assert main(["deploy", str(path), "--c"]) == 2
    told = capsys.readouterr().err
    assert "class Body is stored, not how it was made" in told
    assert "model=Body(...)" in told


def test_a_network_that_does_not_fit_the_file_is_an_error(tmp_path, examples):
    model = small()
    bf.binarize(model)
    model(examples[0])
    bf.save(model, tmp_path / "net.safetensors")
    with pytest.raises(bf.UserError):
        bf.load(tmp_path / "net.safetensors", model=small(width=4))
    with pytest.raises(bf.UserError, match="not a network"):
        bf.load(tmp_path / "net.safetensors", model=small)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: bf.binarize(small(), plan="BBB"), "3 letters"),
        (lambda: bf.binarize(small(), method="bnm"), "did you mean"),
        (lambda: bf.binarize(small(), mu=3), "mu"),
        (lambda: bf.binarize(nn.Linear(2, 2)), "no layer that a plan decides"),
        (lambda: bf.binarize(small).before_step(0.5), "no network"),
        (lambda: bf.binarize(small()).before_step(3), "no fraction"),
        (lambda: bf.save(small(), "x.safetensors"), "not made binary"),
        (lambda: bf.cost(small(), "BBBB", (3, 6, 6)), "4 letters"),
        (lambda: bf.cost(small(), "B", (5, 6, 6)), "do not fit"),
        (lambda: bf.load("none.safetensors"), "no such file"),
    ],
)
def test_a_mistake_is_one_line(mistake, message):
    with pytest.raises(bf.UserError, match=message) as caught:
        mistake()
    assert "\n" not in caught.value.message


def test_a_network_that_was_never_called_cannot_be_saved(tmp_path):
    model = small()
    bf.binarize(model)
    with pytest.raises(bf.UserError, match="never called"):
        bf.save(model, tmp_path / "net.safetensors")


def test_a_network_is_made_binary_once():
    model = small()
    bf.binarize(model)
    with pytest.raises(bf.UserError, match="already"):
        bf.binarize(model)


def test_a_network_that_is_no_longer_used_is_freed():
    model = small()
    bf.binarize(model)
    seen = weakref.ref(model)
    del model
    gc.collect()
    assert seen() is None


def test_costs_are_known_before_training_and_one_letter_is_all_layers():
    model = small()
    full, binary = bf.cost(model, "F", (3, 6, 6)), bf.cost(model, "B", (3, 6, 6))
    assert binary == bf.cost(model, "BB", (3, 6, 6))
    assert full["flops_pct"] == 100.0
    assert binary["flops"] < full["flops"]
    assert next(model.parameters()).device.type == "cpu"


def test_what_there_is_comes_as_tables():
    assert "mu_end" in bf.methods().loc["bnn++", "parameters"]
    assert bf.datasets().loc["digits", "classes"] == 10
    assert "mixbin-grad" in bf.selectors().index
    assert "mlp" in bf.models().index


@pytest.mark.parametrize("made", [torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.clone])
def test_an_example_that_is_no_image_is_made_a_batch_of_one(made):
    spec = TrialSpec(task=Task.model_validate({"dataset": "input:2x16:3", "model": "mlp"}), plan="")
    loaded = bf.LoadedNetwork(nn.Identity(), spec, {})
    example = torch.rand(2, 16)
    assert torch.equal(loaded.preprocess(made(example)), example[None])
    with pytest.raises(bf.UserError, match="shape 5x2x16, the network takes 2x16"):
        loaded.preprocess(made(torch.rand(5, 2, 16)))
