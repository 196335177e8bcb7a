"""Networks of the user's own: their layers are found by following an example, whatever they are
called and however the network is written; they are counted, made binary, packed and reloaded
exactly."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

from bitfront.search.config.load import load
from bitfront.spaces.costs import costs_of
from bitfront.trainables import own_code, packed
from bitfront.trainables.cost import cost_table, task_cost_table, trace
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import METHODS
from bitfront.trainables.models import build_model
from bitfront.trainables.plan import plan_layers
from bitfront.trainables.selectors import SelectionSpec
from bitfront.trainables.selectors.scores.scoring import run
from bitfront.trainables.structure.attention import open_attention
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.checkpoint_files import load_weights, weights_of
from bitfront.trainables.training.network import Network

ZOO = '''
import torch
from torch import nn
import torch.nn.functional as F


class Residual(nn.Module):
    """Nothing is called conv, shortcut or fc; the order of making is not that of use."""

    def __init__(self, num_classes=1000, in_channels=3, width=4):
        super().__init__()
        self.omega = nn.Linear(2 * width, num_classes)
        self.side = nn.Conv2d(width, 2 * width, 1, 2)
        self.b = nn.Conv2d(2 * width, 2 * width, 3, 1, 1)
        self.a = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.alpha = nn.Conv2d(in_channels, width, 3, 1, 1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        x = torch.tanh(self.norm(self.alpha(x)))
        y = self.b(torch.tanh(self.a(x)))
        y += self.side(x)
        return self.omega(y.mean((2, 3)).view(x.size(0), -1))


class Signal(nn.Module):
    """One dimension, a list of layers, one of them used three times, a transposed one in groups."""

    def __init__(self, num_classes, width=6):
        super().__init__()
        self.begin = nn.Conv1d(1, width, 3, padding=1)
        self.steps = nn.ModuleList([nn.Conv1d(width, width, 3, padding=1) for _ in range(2)])
        self.up = nn.ConvTranspose1d(width, 4, 4, stride=2, padding=1, groups=2)
        self.end = nn.Linear(4, num_classes)

    def forward(self, x):
        x = torch.tanh(self.begin(x.flatten(1)[:, None]))
        for step in (self.steps[0], self.steps[1], self.steps[1], self.steps[1]):
            x = torch.tanh(step(x))
        return self.end(torch.tanh(self.up(x)).mean(2))


class Volume(nn.Module):
    def __init__(self, num_classes, inner=5):
        super().__init__()
        self.one = nn.Conv3d(1, 3, 3, padding=1)
        self.two = nn.Conv3d(3, 3, 2, stride=2)
        self.three = nn.ConvTranspose3d(3, inner, 2, stride=2, bias=False)
        self.four = nn.Conv2d(inner, 3, 3)
        self.last = nn.Linear(3, num_classes)

    def forward(self, x):
        x = x.reshape(x.shape[0], 1, 4, 4, 4)
        x = self.three(torch.tanh(self.two(torch.tanh(self.one(x)))))
        return self.last(torch.tanh(self.four(torch.tanh(x[:, :, 0]))).flatten(2).mean(2))


class Attention(nn.Module):
    """torch's attention, in one weight and in three, and a layer that calls none in its fast
    path."""

    def __init__(self, num_classes, width=12):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 12, dropout=0.0, batch_first=True)
        self.attend = nn.MultiheadAttention(width, 2, kdim=8, vdim=8, batch_first=True)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        rows = x.view(x.shape[0], 8, 8)
        y = self.layer(torch.cat([self.token.expand(len(rows), -1, -1), self.embed(rows)], 1))
        y = y + self.attend(y, rows, rows)[0]
        return self.head(y[:, 0])


class Tied(nn.Module):
    """Two layers with one weight, a layer that is never called, integers that matter."""

    def __init__(self, num_classes, width=8):
        super().__init__()
        self.into = nn.Linear(64, width)
        self.there = nn.Linear(width, width)
        self.back = nn.Linear(width, width)
        self.back.weight = self.there.weight
        self.unused = nn.Linear(3, 3)
        self.out = nn.Linear(width, num_classes)
        self.register_buffer("order", torch.randperm(width))

    def forward(self, x):
        x = torch.tanh(self.into(x.flatten(1)))[:, self.order]
        return self.out(torch.tanh(self.back(torch.tanh(self.there(x)))))


class Normed(nn.Module):
    """Weight normalisation, a lazy layer, an LSTM, a function in place of a layer."""

    def __init__(self, num_classes):
        super().__init__()
        self.rnn = nn.LSTM(8, 6, batch_first=True)
        self.first = nn.LazyLinear(7)
        self.second = nn.utils.parametrizations.weight_norm(nn.Linear(7, 7))
        self.third = nn.Linear(7, 7)
        self.weight = nn.Parameter(torch.randn(num_classes, 7))

    def forward(self, x):
        x = self.rnn(x.view(-1, 8, 8))[0][:, -1]
        x = self.third(torch.tanh(self.second(torch.tanh(self.first(x)))))
        return F.linear(x, self.weight)


def stubborn(num_classes=3, width=6):
    """Cannot be made on the meta device."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Tanh(), nn.Linear(width, width))
    net.append(nn.Linear(width, num_classes))
    assert float(net[1].weight.abs().sum()) > 0
    return net
'''

pytestmark = pytest.mark.slow

NETWORKS = ["Residual", "Signal", "Volume", "Attention", "Tied", "Normed", "stubborn"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    (code / "zoo.py").write_text(ZOO)
    own_code.look_in(code)
    return code


def task_of(name: str, **keys: object) -> Task:
    reference = own_code.settle(f"zoo.py:{name}")
    params = keys.pop("params", {})
    model = {"name": reference, **params}
    return Task.model_validate({"dataset": "digits", "model": model, "subset": 60, **keys})


def roles_of(task: Task) -> dict[str, str]:
    return {layer.name: layer.role for layer in task_cost_table(task).layers if layer.role}


# --- finding layers -----------------------------------------------------------------------------


def test_first_last_and_shortcut_are_found_by_the_way_of_an_example(folder: Path) -> None:
    assert roles_of(task_of("Residual")) == {
        "alpha": "first",
        "a": "planned",
        "b": "planned",
        "side": "shortcut",
        "omega": "last",
    }


def test_a_layer_in_a_list_that_is_used_three_times_is_one_layer_counted_three_times(
    folder: Path,
) -> None:
    table = task_cost_table(task_of("Signal"))
    assert [layer.name for layer in table.plan_layers] == ["steps.0", "steps.1", "up"]
    macs = {layer.name: layer.macs for layer in table.layers}
    assert macs["steps.0"] == 6 * 6 * 3 * 64
    assert macs["steps.1"] == 3 * macs["steps.0"]
    assert macs["up"] == 64 * (6 * 2 * 4)  # every weight once per position of the input


def test_the_projections_of_attentions_are_layers(folder: Path) -> None:
    table = task_cost_table(task_of("Attention"))
    assert [layer.name for layer in table.plan_layers] == [
        "layer.self_attn.in_proj",
        "layer.self_attn.out_proj",
        "layer.linear1",
        "layer.linear2",
        "attend.q_proj",
        "attend.k_proj",
        "attend.v_proj",
        "attend.out_proj",
    ]
    macs = {layer.name: layer.macs for layer in table.layers}
    assert macs["layer.self_attn.in_proj"] == 9 * 12 * 36
    assert macs["attend.k_proj"] == 8 * 8 * 12
    assert macs["layer.self_attn.product"] == 2 * 9 * 9 * 12
    assert macs["attend.product"] == 2 * 9 * 8 * 12


def test_layers_that_share_a_weight_are_one_layer_of_a_plan(folder: Path) -> None:
    table = task_cost_table(task_of("Tied"))
    assert [(layer.name, layer.tied) for layer in table.plan_layers] == [("there", ("back",))]
    rows = {row.name: row for row in table.rows("B")}
    assert rows["back"].level == "B"
    assert (rows["there"].costs["bytes"], rows["back"].costs["bytes"]) == (8, 0)


def test_what_follows_an_lstm_is_not_the_first_layer(folder: Path) -> None:
    table = task_cost_table(task_of("Normed"))
    assert [layer.name for layer in table.plan_layers] == ["first"]
    assert roles_of(task_of("Normed")) == {"first": "planned", "third": "last"}


def test_a_network_that_cannot_be_made_on_the_meta_device_is_traced_on_the_cpu(
    folder: Path,
) -> None:
    assert roles_of(task_of("stubborn")) == {"1": "first", "3": "planned", "4": "last"}


def test_networks_of_libraries_keep_their_plans() -> None:
    torchvision = pytest.importorskip("torchvision")
    with torch.device("meta"):
        resnet = torchvision.models.resnet18()
        squeezenet = torchvision.models.squeezenet1_1()
    assert len(plan_layers(resnet)) == 16
    assert len(plan_layers(resnet, "all")) == 21
    assert len(plan_layers(squeezenet)) == 24
    assert trace(resnet, (3, 32, 32)).plan_layers == tuple(plan_layers(resnet))


def test_an_example_finds_the_shortcuts_of_a_resnet_that_its_names_tell() -> None:
    torchvision = pytest.importorskip("torchvision")
    with torch.device("meta"):
        resnet = torchvision.models.resnet18()
    found = trace(resnet, (3, 32, 32), by_names=False)
    assert found.plan_layers == tuple(plan_layers(resnet))


# --- which of them a plan decides ---------------------------------------------------------------


def test_names_modules_and_patterns_choose_layers(folder: Path) -> None:
    def planned(**keys: object) -> list[str]:
        return [layer.name for layer in task_cost_table(task_of("Signal", **keys)).plan_layers]

    assert planned(binarize=["steps"]) == ["steps.0", "steps.1"]
    assert planned(binarize=["*.1", "begin"]) == ["begin", "steps.1"]
    assert planned(binarize="all") == ["begin", "steps.0", "steps.1", "up", "end"]
    assert planned(keep_full=["u*"]) == ["steps.0", "steps.1"]
    assert planned(binarize="all", keep_full=["steps", "end"]) == ["begin", "up"]


@pytest.mark.parametrize("key", ["binarize", "keep_full"])
def test_a_pattern_that_matches_nothing_names_the_nearest_layer(folder: Path, key: str) -> None:
    with pytest.raises(UserError, match=f"{key}: no layer is called 'step.0', did you mean 'steps"):
        task_cost_table(task_of("Signal", **{key: ["step.0"]}))


def test_patterns_are_for_networks_of_ours_too() -> None:
    model = {"name": "mlp", "depth": 3, "width": 8}
    task = Task.model_validate({"dataset": "digits", "model": model, "keep_full": ["layers.1"]})
    assert [layer.name for layer in task_cost_table(task).plan_layers] == ["layers.2"]


def test_a_layer_that_no_plan_can_decide_is_refused_by_name(folder: Path) -> None:
    with pytest.raises(UserError, match="layer second has a weight that is computed from other"):
        task_cost_table(task_of("Normed", binarize=["second"]))
    with pytest.raises(UserError, match="layer unused is not called"):
        task_cost_table(task_of("Tied", binarize=["unused"]))


def test_the_new_keys_leave_ids_of_trials_as_they_were(folder: Path) -> None:
    data = {"dataset": "digits", "model": "mlp"}
    plain = TrialSpec(task=Task.model_validate(data), plan="FF")
    assert plain.fingerprint() == "e3d4695d"
    kept = TrialSpec(task=Task.model_validate({**data, "keep_full": ["layers.1"]}), plan="F")
    assert kept.fingerprint() != plain.fingerprint()


# --- exactly ------------------------------------------------------------------------------------


def spec_of(task: Task, level: str, method: str, **params: object) -> TrialSpec:
    layers = task_cost_table(task).plan_layers
    letters = [level if level != "A" or la.accumulates else "B" for la in layers]
    return TrialSpec.model_validate(
        {"task": task, "method": method, "params": params, "plan": "".join(letters)}
    )


def stored_and_loaded(spec: TrialSpec, path: Path) -> tuple[Network, nn.Module, int]:
    torch.manual_seed(0)
    network = Network(spec)
    network.model.train()(torch.randn(8, 1, 8, 8))
    network.model.eval()
    network.verify()
    size = packed.save(network, spec, path, {})
    torch.manual_seed(1)
    return network, packed.load(path)[0], size


CASES = [
    ("W", "bnn", {"scale": "channel"}),
    ("B", "bnn", {"scale": "channel"}),
    ("B", "react", {"scale": "layer"}),
    ("A", "bnn", {"scale": "channel", "acc_bits": 6}),
    ("W", "edge-popup", {"rate": 0.5}),
]


@pytest.mark.parametrize(("level", "method", "params"), CASES)
@pytest.mark.parametrize("name", NETWORKS)
def test_bytes_are_those_of_the_packed_file_and_it_reloads_bit_for_bit(
    folder: Path, tmp_path: Path, name: str, level: str, method: str, params: dict
) -> None:
    if level not in METHODS.get(method).levels:
        pytest.skip(f"{method} has no level {level}")
    spec = spec_of(task_of(name, binarize="all"), level, method, **params)
    network, loaded, size = stored_and_loaded(spec, tmp_path / "net.safetensors")
    made = METHODS.get(method)(dict(spec.params))
    table = task_cost_table(spec.task)
    kept = made.kept(table.sizes(spec.plan))
    assert table.costs(spec.plan, made.scale, made.shifts_inputs, kept)["bytes"] == size
    x = torch.randn(4, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(network.model(x), loaded(x))
    assert network.model(x).isfinite().all()


@pytest.mark.parametrize("name", NETWORKS)
def test_every_binary_layer_gets_gradients_and_binary_inputs(folder: Path, name: str) -> None:
    spec = spec_of(task_of(name, binarize="all"), "B", "bnn")
    network = Network(spec)
    seen: dict[str, torch.Tensor] = {}
    for layer in network.binary:
        for each in (layer.module, *layer.tied):
            quantizer = each.input_quantizer
            quantizer.register_forward_hook(
                lambda _m, _a, out, name=layer.name: seen.update({name: out})
            )
    network.model(torch.randn(4, 1, 8, 8)).square().sum().backward()
    for layer in network.binary:
        assert layer.latent.grad is not None, layer.name
        assert layer.latent.grad.abs().sum() > 0, layer.name
        assert set(seen[layer.name].unique().tolist()) <= {-1.0, 1.0}, layer.name


def test_scales_of_a_transposed_convolution_are_per_output_channel(folder: Path) -> None:
    network = Network(spec_of(task_of("Signal"), "W", "bnn", scale="channel"))
    network.model.eval()
    weight = network.model.get_submodule("up").weight.detach()  # (inputs, outputs of a group, 4)
    by_output = [weight[3 * g : 3 * g + 3, o] for g in range(2) for o in range(2)]
    assert [part.abs().unique().numel() for part in by_output] == [1, 1, 1, 1]
    assert weight.abs().unique().numel() == 4


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_without_a_plan_load_into_latents(folder: Path, name: str) -> None:
    task = task_of(name, binarize="all")
    layers = len(task_cost_table(task).plan_layers)
    plain = Network(TrialSpec(task=task, plan="F" * layers))
    weights = weights_of(plain.model)
    binary = Network(spec_of(task, "B", "bnn"))
    fit = load_weights(binary.model, weights, "plain")
    assert fit.complete
    back = weights_of(binary.model)
    assert all(torch.equal(back[key], tensor) for key, tensor in weights.items())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("method", "level"), [("bnn", "B"), ("lr-net", "W"), ("bop", "W")])
def test_a_trial_trains(folder: Path, start, finish, name: str, method: str, level: str) -> None:
    hidden = {"Attention": ["*_proj"], "Tied": ["there"]} if method == "lr-net" else {}
    task = task_of(name, epochs=1, binarize="all", keep_full=hidden.get(name, []))
    training = finish(start(spec_of(task, level, method)))
    assert 0 <= training.history[-1]["val_accuracy"] <= 1
    training.network.verify()


def test_a_method_that_computes_outputs_itself_is_refused_where_it_cannot(folder: Path) -> None:
    with pytest.raises(UserError, match="hides those of the projections"):
        Network(spec_of(task_of("Attention"), "W", "lr-net"))
    with pytest.raises(UserError, match="there shares its weight with back"):
        Network(spec_of(task_of("Tied"), "W", "lr-net"))


@pytest.mark.parametrize("name", ["Signal", "Volume", "Attention", "Tied"])
@pytest.mark.parametrize("selector", ["mixbin-grad", "mixbin-loss", "hawq", "bnas"])
def test_selectors_rank_its_layers(folder: Path, name: str, selector: str) -> None:
    task = task_of(name, epochs=1)
    spec = SelectionSpec(selector=selector, task=task, method="bnn")
    if selector == "bnas" and name in ("Attention", "Tied"):
        with pytest.raises(UserError, match="bnas mixes"):
            run(spec.build(), spec, None, 0.0, lambda _text: None)
        return
    found = run(spec.build(), spec, None, 0.0, lambda _text: None)
    assert sorted(found.order) == list(range(len(task_cost_table(task).plan_layers)))


def test_an_opened_attention_computes_what_it_did() -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x, y = torch.randn(3, 5, 8), torch.randn(3, 4, 8)
    before = attention(x, y, y)[0], attention(x, x, x)[0]
    open_attention(attention)
    assert torch.equal(before[0], attention(x, y, y)[0])
    assert torch.equal(before[1], attention(x, x, x)[0])
    called = []
    attention.out_proj.register_forward_pre_hook(lambda *_: called.append(1))
    assert torch.allclose(before[0], attention(x, y, y)[0], atol=1e-6)
    assert called == [1]


def test_narrow_accumulators_are_not_for_the_inputs_of_an_attention(folder: Path) -> None:
    spec = spec_of(task_of("Attention"), "B", "bnn")
    with pytest.raises(UserError, match=r"layer\.self_attn\.in_proj projects the inputs"):
        Network(spec.model_copy(update={"plan": "A" + spec.plan[1:]}))


# --- mistakes -----------------------------------------------------------------------------------

WRONG = {
    "pair": "return self.last(x.flatten(1)), x",
    "lost": "return self.last(x.flatten(1)).squeeze()[0]",
    "wide": "return torch.cat([self.last(x.flatten(1))] * 2, 1)",
    "one": "return self.last(x.flatten(1))[:, 0]",
    "cuda": "raise RuntimeError('Torch not compiled with CUDA enabled')",
    "fails": "return self.last(x)",
    "frozen": "with torch.no_grad(): return self.last(x.flatten(1))",
    "detached": "return self.last(x.flatten(1)).detach()",
    "trained": "y = self.last(x.flatten(1)); return (y, y) if self.training else y",
}


def write(folder: Path, forward: str, arguments: str = "num_classes", body: str = "pass") -> Path:
    (folder / "net.py").write_text(
        textwrap.dedent(
            f"""
            import torch
            from torch import nn

            class Net(nn.Module):
                def __init__(self, {arguments}):
                    super().__init__()
                    {body}
                    self.last = nn.Linear(64, 10)

                def forward(self, x):
                    {forward}
            """
        )
    )
    path = folder / "mine.yaml"
    path.write_text(
        "task:\n  dataset: digits\n  model: {name: net.py:Net}\nspace: {method: bnn, plan: W}\n"
    )
    return path


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        ("pair", r"net\.py:Net returns a tuple of 2, not one tensor", "a function that wraps"),
        ("lost", r"net\.py:Net returns shape .* for a batch of 1", "squeeze"),
        ("wide", "returns 20 numbers per example, the data have 10 classes", "num_classes"),
        ("one", "returns one number per example, the data have 10 classes", "num_classes"),
        ("cuda", r"net\.py:12: net\.py:Net fails on 1x8x8", "leave out .cuda()"),
        ("fails", r"net\.py:12: net\.py:Net fails on 1x8x8: RuntimeError", "1x1x8x8"),
        ("frozen", "returns an output without a gradient", "leave out torch.no_grad()"),
        ("detached", "returns an output without a gradient", ".detach()"),
        ("trained", "net.py:Net in training returns a tuple of 2", "wraps"),
    ],
)
def test_an_output_that_cannot_be_used_is_said_with_file_and_line(
    folder: Path, wrong: str, message: str, hint: str
) -> None:
    with pytest.raises(UserError, match=rf"mine\.yaml:3 task\.model: .*{message}") as refused:
        load(write(folder, WRONG[wrong]))
    assert hint in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_a_constructor_that_fails_or_lacks_an_argument_is_said_with_file_and_line(
    folder: Path,
) -> None:
    fine = "return self.last(x.flatten(1))"
    path = write(folder, fine, body="raise ValueError('width must be even')")
    with pytest.raises(
        UserError, match=r"net\.py:8: Net\(num_classes=10\) cannot be made: ValueError: width must"
    ):
        load(path)
    with pytest.raises(UserError, match=r"mine\.yaml:3 task\.model: net\.py:Net needs depth"):
        load(write(folder, fine, "depth, width=3"))
    with pytest.raises(UserError, match=r"task\.model\.widht: .*no such argument, did you mean 'w"):
        load(write(folder, fine, "width=3"), ["task.model.widht=4"])


def test_a_forward_that_needs_more_than_the_examples_is_said_with_a_hint(folder: Path) -> None:
    path = write(folder, "return self.last(x.flatten(1))")
    code = (folder / "net.py").read_text().replace("forward(self, x)", "forward(self, x, *, mask)")
    (folder / "net.py").write_text(code)
    with pytest.raises(UserError, match="required keyword-only argument: 'mask'") as refused:
        load(path)
    assert "give the argument a default" in str(refused.value)


@pytest.mark.parametrize(
    ("place", "hint"),
    [
        ("net.py", "without the dot"),
        ("nets/net.py", "as a module of its package: nets.net:Net"),
    ],
)
def test_a_relative_import_says_how_its_file_is_named(folder: Path, place: str, hint: str) -> None:
    path = write(folder, "return self.last(x.flatten(1))")
    (folder / "nets").mkdir()
    (folder / "nets" / "__init__.py").touch()
    (folder / place).write_text("from .blocks import Net\n")
    with pytest.raises(UserError, match=r"net\.py:1: .*attempted relative import") as refused:
        load(path, [f"task.model={place}:Net"])
    assert hint in str(refused.value)


def test_weights_without_values_are_refused(folder: Path) -> None:
    body = "self.a = nn.Parameter(torch.zeros(3, device='meta'))"
    path = write(folder, "return self.last(x.flatten(1))", body=body)
    with pytest.raises(UserError, match="meta device, without values"):
        build_model(load(path, ["task.binarize=all"])[0].task.model.name, {}, (1, 8, 8), 10)


def test_a_layer_with_two_names_is_packed_once(folder: Path, tmp_path: Path) -> None:
    body = "self.first = nn.Linear(64, 64); self.again = self.first"
    path = write(folder, "return self.last(self.again(x.flatten(1)).tanh())", body=body)
    task = load(path, ["task.binarize=all"])[0].task
    network, loaded, size = stored_and_loaded(spec_of(task, "B", "bnn"), tmp_path / "n.safetensors")
    assert size == costs_of(spec_of(task, "B", "bnn"))["bytes"]
    x = torch.randn(4, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(network.model(x), loaded(x))


def test_a_file_that_fails_when_it_is_imported_is_said_with_a_hint(folder: Path) -> None:
    path = write(folder, "return x")
    (folder / "net.py").write_text("import no_such_package\n")
    with pytest.raises(UserError, match=r"net\.py:1: .*ModuleNotFoundError") as refused:
        load(path)
    assert "install no_such_package" in str(refused.value)
    (folder / "net.py").write_text("\nraise ValueError('boom')\n")
    with pytest.raises(UserError, match=r"net\.py:2: .*ValueError: boom") as refused:
        load(path)
    assert f"python {folder / 'net.py'}" in str(refused.value)


def test_a_required_argument_may_be_drawn(folder: Path) -> None:
    path = write(folder, "return self.last(x.flatten(1))", "depth")
    config, space = load(path, ["space.model.depth=[1, 2]", "task.binarize=all"])
    assert {task.model.params["depth"] for task in space.extreme_tasks()} == {1, 2}
    assert config.task.model.name.startswith("net.py:Net@")


def test_what_is_no_network_is_said(folder: Path) -> None:
    path = write(folder, "return x")
    (folder / "net.py").write_text("import torch\nNet = torch.nn.Linear(1, 1)\n")
    with pytest.raises(UserError, match="is one network, and trials need a new one each"):
        load(path)
    (folder / "net.py").write_text("Net = 3\n")
    with pytest.raises(UserError, match=r"net\.py:Net is no network: it is a int"):
        load(path)
    (folder / "net.py").write_text("def Net(): return 3\n")
    with pytest.raises(UserError, match="returns a int, no network"):
        load(path)


def test_any_value_of_yaml_is_an_argument(folder: Path) -> None:
    body = "assert sizes == [3, 4] and kind is None, sizes"
    path = write(folder, "return self.last(x.flatten(1))", "sizes, kind", body)
    load(path, ["task.model.sizes=[3, 4]", "task.model.kind=null", "task.binarize=all"])


def test_arguments_may_be_called_like_ours(folder: Path) -> None:
    body = "assert (shape, classes, found, reference) == ([8], 10, 3, 'x')"
    fine = "return self.last(x.flatten(1))"
    path = write(folder, fine, "shape, classes, found, reference, values=1", body)
    values = ["shape=[8]", "found=3", "reference=x"]
    load(path, ["task.binarize=all", *(f"task.model.{value}" for value in values)])
    load(path, ["task.binarize=all", *(f"task.model.{v}" for v in (*values, "classes=10"))])
    with pytest.raises(UserError, match="needs name, which is not given") as refused:
        load(write(folder, fine, "name"))
    assert "the key name is that of the network" in str(refused.value)


def test_a_compiled_network_is_searched_as_it_was_before(folder: Path) -> None:
    """Its class is played here: compiling takes a minute, anew with every plan."""
    forward = "return self.last(self.first(x.flatten(1)))"
    path = write(folder, forward, body="self.first = nn.Linear(64, 64)")
    wrapped = """

class OptimizedModule(nn.Module):
    def __init__(self, module):
        super().__init__()
        self._orig_mod = module

    def forward(self, x):
        raise RuntimeError("compiled")


def whole():
    net = Net(10)
    net.first = OptimizedModule(net.first)
    return OptimizedModule(net)
"""
    (folder / "net.py").write_text((folder / "net.py").read_text() + wrapped)
    _, space = load(path, ["task.model=net.py:whole", "task.binarize=all"])
    assert [layer.name for layer in task_cost_table(space.task).plan_layers] == ["first", "last"]


def test_a_scripted_network_is_refused(folder: Path) -> None:
    path = write(folder, "return self.last(x.flatten(1))")
    more = "\n\ndef scripted():\n    return torch.jit.trace(Net(10), torch.zeros(1, 1, 8, 8))\n"
    (folder / "net.py").write_text((folder / "net.py").read_text() + more)
    with pytest.raises(UserError, match="a ScriptModule, whose layers are fixed"):
        load(path, ["task.model=net.py:scripted"])


def test_a_network_without_a_layer_to_plan_is_said_with_what_its_layers_are(folder: Path) -> None:
    path = write(folder, "return self.last(x.flatten(1))")
    free = "space.plan={per: layer, levels: [F, B]}"
    with pytest.raises(UserError, match=r"no layer to plan: last \(first\); task.binarize: all"):
        load(path, [free])
    path = write(folder, "return x.flatten(1)[:, :10] * self.last.bias")
    with pytest.raises(UserError, match="no convolution or linear layer is called"):
        load(path, [free])


def test_an_argument_that_a_network_fails_with_is_said(folder: Path) -> None:
    path = write(folder, "return self.last(x.flatten(self.depth))", "depth=1", "self.depth = depth")
    with pytest.raises(UserError, match=r"net\.py:Net\(depth=3\) fails on 1x8x8"):
        load(path, ["space.model.depth=[1, 3]", "task.binarize=all"])


def test_layers_that_are_only_read_are_named_together() -> None:
    with pytest.raises(UserError, match=r"attn\.qkv is read") as refused:
        cost_table("torchvision/swin_t", {}, (3, 64, 64), 10)
    assert "task.keep_full: ['*.qkv', '*.proj']" in str(refused.value.hint)
