"""Claims about methods: every registered one passes the same conformance suite on every level it
declares: it learns, it ends exactly binary, and a run that was interrupted ends bit for bit like
one that was not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrize

from trainables.binary import NotBinaryError, verify_binary
from trainables.methods import METHODS, build_method
from trainables.models import build_model
from trainables.plan import LEVELS, binary_layers, plan_layers
from trainables.registry import UserError
from trainables.training import (
    Training,
    evaluate,
    load_state,
    recalibrate,
    save_state,
)

RUNS = [(name, level) for name in METHODS for level in METHODS.get(name).levels]
BINARY_RUNS = [(name, level) for name, level in RUNS if level != "F"]
BINARY_METHODS = sorted({name for name, _ in BINARY_RUNS})

# Measured over five seeds: at least 0.95 (F), 0.93 (W) and 0.70 (B, the slowest is bnn++); with
# frozen latents at most 0.48 (W) and 0.38 (B).
FLOORS = {"F": 0.90, "W": 0.85, "B": 0.60}


def hand_sign(w: Tensor) -> Tensor:
    return torch.where(w >= 0, 1.0, -1.0)


def same_state(one: Training, other: Training) -> bool:
    """Weights, buffers, optimizer moments and random states, bit for bit."""

    def flat(value: object) -> list[object]:
        if isinstance(value, dict):
            return [x for k in value if k not in ("seconds",) for x in [k, *flat(value[k])]]
        if isinstance(value, list | tuple):
            return [x for item in value for x in flat(item)]
        return [value]

    pairs = list(zip(flat(one.state_dict()), flat(other.state_dict()), strict=True))
    assert sum(isinstance(a, Tensor) for a, _ in pairs) > 20
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)


def without_time(history: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history]


# --- the declaration ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_declared_completely(name: str) -> None:
    method = METHODS.get(name)
    assert method.name == name
    assert method.family
    assert method.paper
    assert method.doc
    assert method.levels
    assert set(method.levels) <= set(LEVELS)
    for key, param in method.params.items():
        assert param.domain.contains(param.default), key
        assert param.doc, key


@pytest.mark.parametrize("name", METHODS)
def test_the_declaration_is_json(name: str) -> None:
    method = METHODS.get(name)
    shown = json.loads(json.dumps(method.describe()))
    assert shown["name"] == name
    assert shown["levels"] == list(method.levels)
    assert set(shown) == {"name", "family", "paper", "doc", "levels", "params"}
    assert {k: v["default"] for k, v in shown["params"].items()} == build_method(name, {}).values
    assert all(v["range"] for v in shown["params"].values())


@pytest.mark.parametrize("name", METHODS)
def test_what_is_searched_is_also_accepted(name: str) -> None:
    for param in METHODS.get(name).params.values():
        if param.search is None:
            continue
        ends = getattr(param.search, "values", None) or (param.search.low, param.search.high)
        assert all(param.domain.contains(end) for end in ends)


@pytest.mark.parametrize("name", METHODS)
def test_an_unknown_parameter_names_the_method(name: str) -> None:
    with pytest.raises(UserError, match=r"\.mo: unknown key"):
        build_method(name, {"mo": 1.0})


def test_full_precision_takes_no_binary_plan(make_spec, start) -> None:
    with pytest.raises(UserError, match="the method takes only F"):
        start(make_spec("fp", plan="FW"))


# --- it learns, in binary -----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "level"), RUNS)
def test_a_network_with_every_weight_in_the_plan_learns_digits(trained, name, level) -> None:
    training = trained(name, level, "none")
    assert training.history[-1]["val_accuracy"] >= FLOORS[level]


@pytest.mark.parametrize(("name", "level"), [r for r in RUNS if r[1] == "B"])
def test_a_residual_network_with_a_binary_body_learns_digits(make_spec, start, finish, name, level):
    spec = make_spec(
        name,
        level,
        model={"name": "cresnet", "depth": 8, "width": 8},
        epochs=3,
        batch_size=48,
        subset=None,
    )
    # Over four seeds at least 0.93 (bc, bnn), 0.85 (bnn+) and 0.79 (bnn++); with frozen latents
    # 0.67, 0.77, 0.66 and 0.30.
    floors = {"bc": 0.85, "bnn": 0.85, "bnn+": 0.75}
    assert finish(start(spec)).history[-1]["val_accuracy"] >= floors.get(name, 0.65)


@pytest.mark.parametrize("scale", ["none", "layer", "channel"])
@pytest.mark.parametrize(("name", "level"), BINARY_RUNS)
def test_it_ends_exactly_binary(make_spec, start, finish, name, level, scale) -> None:
    training = finish(start(make_spec(name, level, params={"scale": scale}, binarize="all")))
    training.network.verify()
    training.model.eval()
    assert len(training.network.binary) == 4
    for layer in training.network.binary:
        weight, latent = layer.module.weight.detach(), layer.latent.detach()
        dims = {"none": (), "layer": (0, 1), "channel": (1,)}[scale]
        s = latent.abs().mean(dims, keepdim=True) if dims else torch.ones(())
        assert torch.equal(weight, hand_sign(latent) * s)
        groups = weight if scale == "channel" else weight.reshape(1, -1)
        assert all(row.unique().numel() == 2 for row in groups)


@pytest.mark.parametrize("scale", ["none", "channel"])
@pytest.mark.parametrize(("name", "level"), BINARY_RUNS)
def test_the_reported_accuracy_is_that_of_hard_weights(trained, name, level, scale) -> None:
    """A plain network, its weights replaced by signs and its inputs by signs, by hand."""
    training = trained(name, level, scale)
    task = training.spec.task
    plain = build_model(task.model.name, task.model.params, (1, 8, 8), 10)
    state = {
        key: value
        for key, value in training.model.state_dict().items()
        if ".parametrizations." not in key
    }
    modules = dict(plain.named_modules())
    for layer, letter in binary_layers(training.spec.plan, plan_layers(plain, task.binarize)):
        latent = training.model.get_parameter(f"{layer.name}.parametrizations.weight.original")
        s = latent.abs().mean(1, keepdim=True) if scale == "channel" else 1.0
        state[f"{layer.name}.weight"] = hand_sign(latent) * s
        if letter == "B":
            modules[layer.name].register_forward_pre_hook(lambda _, args: (hand_sign(args[0]),))
    plain.load_state_dict(state)
    by_hand = evaluate(plain, training.validation)
    last = training.history[-1]
    assert by_hand["val_accuracy"] == last["val_accuracy"]
    assert by_hand["val_loss"] == pytest.approx(last["val_loss"], rel=1e-5)


def test_soft_methods_report_the_soft_accuracy_beside_the_hard_one(trained) -> None:
    for name, level in BINARY_RUNS:
        training = trained(name, level, "none")
        extra = {"acc_soft", "val_accuracy_raw"}
        expected = extra if training.method.soft else set()
        assert extra & set(training.history[-1]) == expected
        assert not any(extra & set(row) for row in training.history[:-1])


def test_bnn_plus_plus_trains_a_softer_network_than_it_reports(make_spec, start, finish) -> None:
    training = finish(start(make_spec("bnn++", "B")))
    x = training.validation.x
    hard = training.model(x)
    with training.method.as_trained():
        assert not torch.allclose(training.model(x), hard)
    assert torch.equal(training.model(x), hard)


# --- verify_binary ------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["none", "layer", "channel"])
@pytest.mark.parametrize("value", [0.5, 0.0, 3.0, float("nan")])
def test_one_wrong_weight_is_found(make_spec, start, scale: str, value: float) -> None:
    training = start(make_spec("bnn", "W", params={"scale": scale}))
    layer = training.network.binary[1]
    training.model.eval()
    parametrize.remove_parametrizations(layer.module, "weight", leave_parametrized=True)
    verify_binary(training.model, training.network.binary)
    with torch.no_grad():
        layer.module.weight[2, 3] = value
    with pytest.raises(NotBinaryError, match=r"layer layers\.2 is not binary: it holds"):
        verify_binary(training.model, training.network.binary)


@pytest.mark.parametrize("scale", ["none", "layer", "channel"])
def test_only_channel_scales_may_differ_between_channels(make_spec, start, scale: str) -> None:
    training = start(make_spec("bnn", "W", params={"scale": scale}))
    layer = training.network.binary[0]
    training.model.eval()
    parametrize.remove_parametrizations(layer.module, "weight", leave_parametrized=True)
    with torch.no_grad():
        layer.module.weight[2] *= 2
    if scale == "channel":
        verify_binary(training.model, training.network.binary)
    else:
        with pytest.raises(NotBinaryError):
            verify_binary(training.model, training.network.binary)


def test_a_layer_of_zeros_is_not_binary(make_spec, start) -> None:
    training = start(make_spec("bnn", "W", params={"scale": "layer"}))
    with torch.no_grad():
        training.network.binary[0].latent.zero_()
    with pytest.raises(NotBinaryError, match=r"layers\.1"):
        training.network.verify()


def test_a_quantizer_that_stays_soft_is_found(make_spec, start, finish) -> None:
    training = finish(start(make_spec("bnn++", "W")))
    training.network.verify()
    with training.method.as_trained(), pytest.raises(NotBinaryError):
        training.network.verify()


def test_verifying_does_not_change_the_mode(make_spec, start) -> None:
    training = start(make_spec("bnn", "W"))
    for mode in (True, False):
        training.model.train(mode)
        training.network.verify()
        assert training.model.training is mode


# --- interrupted runs ---------------------------------------------------------------------------

DROPOUT = {"model": {"name": "mlp", "depth": 3, "width": 24, "dropout": 0.3}}
IMAGES = {"model": {"name": "cresnet", "depth": 8, "width": 8}, "augmentation": "crop-flip"}


@pytest.mark.parametrize("task", [DROPOUT, IMAGES], ids=["dropout", "crop-flip"])
@pytest.mark.parametrize(("name", "level"), RUNS)
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(
    make_spec, start, finish, tmp_path: Path, name: str, level: str, task: dict
) -> None:
    spec = make_spec(name, level, **task, schedule={"shape": "cosine", "warmup": 0.2})
    whole = start(spec)
    whole.epoch()
    whole.epoch()
    save_state(whole, tmp_path / "state.pt")
    finish(whole)

    torch.manual_seed(999)
    resumed = start(spec)
    assert load_state(resumed, tmp_path / "state.pt")
    assert resumed.epochs_done == 2
    finish(resumed)
    assert without_time(resumed.history) == without_time(whole.history)
    assert same_state(resumed, whole)


@pytest.mark.parametrize("name", ["bnn", "bnn++"])
def test_validating_does_not_disturb_training(make_spec, start, finish, name: str) -> None:
    spec = make_spec(name, "B", **DROPOUT)
    watched = finish(start(spec))
    unwatched = finish(start(spec, validate_each_epoch=False))
    weights = zip(watched.model.parameters(), unwatched.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)
    assert without_time(watched.history)[-1] == without_time(unwatched.history)[-1]
    assert "val_accuracy" not in unwatched.history[0]


@pytest.mark.parametrize(("name", "level"), RUNS)
def test_the_seed_decides_the_result(make_spec, start, finish, name: str, level: str) -> None:
    one, same, other = (
        finish(start(make_spec(name, level, seed=seed, epochs=2, **DROPOUT))) for seed in (3, 3, 4)
    )
    assert same_state(one, same)
    assert without_time(one.history) == without_time(same.history)
    assert not same_state(one, other)
    assert without_time(one.history) != without_time(other.history)


@pytest.mark.parametrize(
    "content", [b"", b"not a checkpoint", b"PK\x03\x04", "truncated", "flipped"]
)
def test_a_damaged_state_means_starting_over(
    make_spec, start, finish, tmp_path: Path, content: bytes | str
) -> None:
    path = tmp_path / "state.pt"
    spec = make_spec("bnn", "B", epochs=2)
    first = start(spec)
    first.epoch()
    save_state(first, path)
    good = path.read_bytes()
    if content == "truncated":
        path.write_bytes(good[: len(good) // 2])
    elif content == "flipped":
        path.write_bytes(good[:-30] + bytes(30))
    else:
        path.write_bytes(content)
    fresh = start(spec)
    assert not load_state(fresh, path)
    assert not path.exists()
    assert fresh.epochs_done == 0
    assert same_state(finish(fresh), finish(start(spec)))


def test_no_state_means_starting_over(make_spec, start, tmp_path: Path) -> None:
    assert not load_state(start(make_spec()), tmp_path / "state.pt")


def test_a_state_of_another_network_means_starting_over(make_spec, start, tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    save_state(start(make_spec(model={"name": "mlp", "width": 8})), path)
    training, untouched = (start(make_spec()) for _ in range(2))
    assert not load_state(training, path)
    assert same_state(training, untouched)


def test_saving_leaves_one_file_and_no_pickled_code(make_spec, start, tmp_path: Path) -> None:
    save_state(start(make_spec()), tmp_path / "deep" / "state.pt")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["state.pt"]
    state = torch.load(tmp_path / "deep" / "state.pt", weights_only=True)
    assert state["epochs_done"] == 0


# --- what a step does ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", BINARY_METHODS)
def test_layers_the_plan_leaves_full_stay_full(make_spec, start, finish, name: str) -> None:
    spec = make_spec(name, plan="WFBF", model={"name": "mlp", "depth": 5, "width": 24})
    training = start(spec)
    layers = {n: training.model.get_submodule(n) for n in ("layers.2", "layers.4", "layers.0")}
    before = {n: module.weight.detach().clone() for n, module in layers.items()}
    finish(training)
    assert [layer.name for layer in training.network.binary] == ["layers.1", "layers.3"]
    for n, module in layers.items():
        assert not parametrize.is_parametrized(module)
        assert module.weight.unique().numel() > 100
        assert not torch.equal(module.weight, before[n])
        in_eval = module.weight.clone()
        training.model.train()
        assert torch.equal(module.weight, in_eval)
        training.model.eval()


@pytest.mark.parametrize("name", [n for n in BINARY_METHODS if "clamp" in METHODS.get(n).params])
def test_latents_are_clamped_exactly_where_the_method_says(make_spec, start, finish, name) -> None:
    def largest(params: dict[str, bool]) -> float:
        spec = make_spec(name, "W", params=params, optimizer={"lr": 0.5}, epochs=2)
        layers = finish(start(spec)).network.binary
        return max(float(layer.latent.detach().abs().max()) for layer in layers)

    assert largest({"clamp": True}) == 1.0
    assert largest({"clamp": False}) > 1.0
    default = METHODS.get(name).params["clamp"].default
    assert (largest({}) <= 1.0) == default


def test_clamping_touches_the_latents_alone(make_spec, start, finish) -> None:
    spec = make_spec("bc", "W", params={"clamp": True}, optimizer={"lr": 0.5}, epochs=2)
    model = finish(start(spec)).model
    assert model.classifier.weight.abs().max() > 1.0


@pytest.mark.parametrize(
    ("name", "params", "first", "last"),
    [
        ("bnn++", {}, 5.0, 30.0),
        ("bnn++", {"mu_start": 2.0, "mu_end": 100.0, "mu_shape": "exponential"}, 2.0, 100.0),
        ("bnn+", {}, 5.0, 5.0),
        ("bnn+", {"mu": 8.0}, 8.0, 8.0),
    ],
)
def test_mu_is_annealed_from_the_first_step_to_the_last(
    make_spec, start, finish, monkeypatch, name, params, first, last
) -> None:
    training = start(make_spec(name, "B", params=params))
    values = []
    after_step = training.method.after_step
    monkeypatch.setattr(
        training.method,
        "after_step",
        lambda: (values.append(training.method.annealed.value), after_step()),
    )
    finish(training)
    assert len(values) == 20
    assert values[0] == pytest.approx(first)
    assert values[-1] == pytest.approx(last)
    assert values == sorted(values)
    if (name, params) == ("bnn++", {}):
        assert values == pytest.approx([5 + 25 * t / 19 for t in range(20)])


def test_mu_reaches_its_end_at_mu_until() -> None:
    method = build_method("bnn++", {"mu_until": 0.5})
    method.before_step(0.25)
    assert method.annealed.value == pytest.approx(17.5)
    for passed in (0.5, 0.75, 1.0):
        method.before_step(passed)
        assert method.annealed.value == pytest.approx(30.0)


def test_weights_and_inputs_share_one_annealed_value(make_spec, start) -> None:
    training = start(make_spec("bnn++", "B"))
    training.method.before_step(1.0)
    layer = training.network.binary[0].module
    assert layer.input_quantizer.annealed is layer.parametrizations.weight[0].annealed
    assert layer.input_quantizer.annealed.value == 30.0


def test_two_networks_do_not_share_their_annealing() -> None:
    one, other = build_method("bnn++", {}), build_method("bnn++", {})
    one.before_step(1.0)
    assert (one.annealed.value, other.annealed.value) == (30.0, 5.0)


@pytest.mark.parametrize("scale", ["none", "layer", "channel"])
def test_the_scale_takes_no_gradient(make_spec, start, scale: str) -> None:
    training = start(make_spec("bc", "W", params={"scale": scale}))
    training.model.train()
    layer = training.network.binary[0]
    grad = torch.randn(24, 24)
    layer.module.weight.backward(grad)
    dims = {"none": (), "layer": (0, 1), "channel": (1,)}[scale]
    s = layer.latent.detach().abs().mean(dims, keepdim=True) if dims else torch.ones(())
    torch.testing.assert_close(layer.latent.grad, grad * s)


def test_the_hard_accuracy_of_a_soft_method_uses_recalibrated_statistics(
    make_spec, start, finish
) -> None:
    training = finish(start(make_spec("bnn++", "B", subset=600)))
    kept = {k: v.clone() for k, v in training.model.state_dict().items() if "running" in k}
    recalibrate(training.model, training.train, training.spec.task.batch_size)
    for key, value in kept.items():
        assert torch.equal(training.model.state_dict()[key], value), key
