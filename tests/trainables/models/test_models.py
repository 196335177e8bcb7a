"""Claims about models: every registered one passes the same conformance suite; activations have
their closed forms; networks that are not ours take a plan too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchvision
from torch import nn

from bitfront.trainables.cost import cost_table, trace
from bitfront.trainables.data import DATASETS, load_test
from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.binary import apply_plan
from bitfront.trainables.layers.verify import verify_binary
from bitfront.trainables.methods import build_method
from bitfront.trainables.models import MODELS, build_model
from bitfront.trainables.models.activations import BinReLU, RPReLU
from bitfront.trainables.models.mobilenet import MobileBlock
from bitfront.trainables.models.residual import Block
from bitfront.trainables.models.resnet20 import PaddedShortcut
from bitfront.trainables.plan import PlanLayer, plan_layers
from bitfront.trainables.training.evaluation import evaluate
from bitfront.trainables.training.network import memory_format

pytestmark = pytest.mark.slow

# What holds for networks that end in a logit a class; trackers have tests of their own.
CLASSIFIERS = [name for name in MODELS if MODELS.get(name).kind == "classification"]
SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (2,)]
CASES = [
    (name, shape)
    for name in CLASSIFIERS
    for shape in SHAPES
    if len(shape) == 3 or not MODELS.get(name).image
]
ACTIVATIONS = [
    (name, activation)
    for name in CLASSIFIERS
    if "activation" in MODELS.get(name).params
    for activation in MODELS.get(name).params["activation"].domain.values
]


def is_small(name: str) -> bool:
    """Small enough to be built for real in a test; the others are looked at on the meta device."""
    return cost_table(name, {}, (1, 8, 8), 7).parameters < 1_000_000


# --- conformance --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_declared(name: str) -> None:
    info = MODELS.get(name)
    assert info.name == name
    assert info.doc
    for key, param in info.params.items():
        assert param.domain.contains(param.default), key
        assert param.doc, key


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_a_model_maps_a_batch_to_a_logit_a_class(name: str, shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        unreal = build_model(name, {}, shape, 7)
        assert unreal(torch.empty(2, *shape)).shape == (2, 7)
    assert {t.device.type for t in unreal.state_dict().values()} == {"meta"}
    if is_small(name):
        logits = build_model(name, {}, shape, 7)(torch.randn(2, *shape))
        assert logits.shape == (2, 7)
        assert logits.isfinite().all()


@pytest.mark.parametrize("scope", ["body", "all"])
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_planned_layers_exist_in_forward_order_and_have_weights(name, shape, scope) -> None:
    with torch.device("meta"):
        model = build_model(name, {}, shape, 7)
    names = [layer.name for layer in plan_layers(model, scope)]
    assert len(set(names)) == len(names) > 0
    modules = dict(model.named_modules())
    assert all(isinstance(modules[n], nn.Conv2d | nn.Linear) for n in names)
    weighted = {n for n, m in modules.items() if isinstance(m, nn.Conv2d | nn.Linear)}
    first, *_, last = (layer.name for layer in trace(model, shape).layers)
    if scope == "all":
        assert set(names) == weighted
        assert (names[0], names[-1]) == (first, last)
    else:
        assert not {first, last} & set(names)


@pytest.mark.parametrize(("name", "activation"), ACTIVATIONS)
def test_every_activation_builds_and_passes_a_gradient(name: str, activation: str) -> None:
    torch.manual_seed(0)
    model = build_model(name, {"activation": activation}, (1, 8, 8), 3)
    model(torch.randn(4, 1, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert all(p.grad.abs().sum() > 0 for n, p in model.named_parameters() if "conv" in n)


@pytest.mark.parametrize("name", filter(is_small, CLASSIFIERS))
def test_a_seed_decides_the_initial_weights(name: str) -> None:
    def build(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return build_model(name, {}, (1, 8, 8), 3).state_dict()

    one, same, other = build(1), build(1), build(2)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


def test_an_unknown_model_or_parameter_gets_a_suggestion() -> None:
    with pytest.raises(UserError, match="unknown model 'cresnet2', did you mean 'cresnet20'"):
        build_model("cresnet2", {}, (3, 32, 32), 10)
    with pytest.raises(UserError, match=r"model\.widht: unknown key, did you mean 'width'"):
        build_model("mlp", {"widht": 3}, (2,), 2)


# --- the families -------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [7, 9, 19, 2, 0, -4])
def test_a_depth_that_is_not_6n_plus_2_is_refused(depth: int) -> None:
    with pytest.raises(UserError, match=rf"model\.depth: {depth} is outside 8\.\.1202 step 6"):
        build_model("cresnet", {"depth": depth}, (3, 32, 32), 10)


def test_a_residual_network_of_points_is_refused() -> None:
    with pytest.raises(UserError, match=r"takes images, not inputs of shape \(2,\)"):
        build_model("cresnet", {}, (2,), 2)


@pytest.mark.parametrize(("depth", "layers"), [(8, 6), (14, 12), (20, 18)])
def test_depth_and_width_mean_what_they_say(depth: int, layers: int) -> None:
    with torch.device("meta"):
        model = build_model("cresnet", {"depth": depth, "width": 6}, (3, 32, 32), 10)
    planned = plan_layers(model)
    assert len(planned) == layers
    assert model.get_submodule(planned[0].name).out_channels == 6
    assert model.get_submodule(planned[-1].name).out_channels == 24
    assert [layer.stage for layer in planned[:: layers // 3]] == ["stage1", "stage2", "stage3"]
    assert len({layer.block for layer in planned}) == layers // 2


def test_both_units_cost_the_same_and_compute_different_things() -> None:
    tables = [
        cost_table("cresnet", {"depth": 14, "unit": unit}, (3, 32, 32), 10)
        for unit in ("bi-real", "classic")
    ]
    plan = "FWB" * 4
    assert tables[0].totals(plan, "channel") == tables[1].totals(plan, "channel")
    models = []
    for unit in ("bi-real", "classic"):
        torch.manual_seed(0)
        models.append(build_model("cresnet", {"depth": 8, "width": 4, "unit": unit}, (1, 8, 8), 3))
    x = torch.randn(4, 1, 8, 8)
    assert not torch.allclose(models[0](x), models[1](x))


def test_a_bi_real_block_has_a_shortcut_around_each_convolution_and_a_classic_one_around_both():
    x = torch.randn(4, 6, 8, 8)
    bi_real, classic = (Block(6, 6, 1, "identity", u).eval() for u in ("bi-real", "classic"))
    middle = bi_real.first(x) + x
    torch.testing.assert_close(bi_real(x), bi_real.second(middle) + middle)
    torch.testing.assert_close(classic(x), classic.second(classic.first(x)) + x)


@pytest.mark.parametrize("unit", ["bi-real", "classic"])
def test_a_block_that_halves_the_map_projects_its_shortcut(unit: str) -> None:
    block = Block(6, 12, 2, "identity", unit).eval()
    with torch.no_grad():
        block.first.norm.weight.zero_()
        block.second.norm.weight.zero_()
    x = torch.randn(4, 6, 8, 8)
    (conv,) = (m for m in block.shortcut.modules() if isinstance(m, nn.Conv2d))
    (norm,) = (m for m in block.shortcut.modules() if isinstance(m, nn.BatchNorm2d))
    assert conv.kernel_size == (1, 1)
    projected = norm(nn.functional.conv2d(x, conv.weight, stride=2))
    torch.testing.assert_close(block(x), projected)


def test_cresnet20_is_the_cresnet_of_depth_20_and_width_16() -> None:
    named = cost_table("cresnet20", {}, (3, 32, 32), 10)
    assert named == cost_table("cresnet", {"depth": 20, "width": 16}, (3, 32, 32), 10)


def test_a_mobile_block_has_shortcuts_without_weights_around_both_convolutions() -> None:
    block = MobileBlock(3, 6, 2, "identity", "dense").eval()
    for unit in (block.spatial, block.pointwise):
        nn.init.zeros_(unit.conv.weight)
    x = torch.randn(2, 3, 8, 8)
    halved = nn.functional.avg_pool2d(x, 2)
    torch.testing.assert_close(block(x), torch.cat([halved, halved], 1))


def test_the_stem_decides_the_size_of_the_first_stage() -> None:
    sizes = {}
    for stem in ("imagenet", "tiny", "cifar"):
        with torch.device("meta"):
            model = build_model("resnet18", {"stem": stem, "width": 4}, (3, 64, 64), 10)
            sizes[stem] = model.stem(torch.empty(1, 3, 64, 64)).shape[-1]
    assert sizes == {"imagenet": 16, "tiny": 32, "cifar": 64}


def test_the_depthwise_form_has_a_filter_a_channel() -> None:
    with torch.device("meta"):
        dense, depthwise = (
            build_model("mobilenet", {"form": form}, (3, 64, 64), 10)
            for form in ("dense", "depthwise")
        )
    assert dense.blocks[2].spatial.conv.weight.shape == (128, 128, 3, 3)
    assert depthwise.blocks[2].spatial.conv.weight.shape == (128, 1, 3, 3)


@pytest.mark.parametrize(("shortcut", "weights"), [("pad", 267_696), ("projection", 270_256)])
def test_resnet20_has_the_published_number_of_convolution_weights(shortcut, weights) -> None:
    with torch.device("meta"):
        model = build_model("resnet20", {"shortcut": shortcut}, (3, 32, 32), 10)
    convs = [m.weight.numel() for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert sum(convs) == weights
    body = [model.get_submodule(layer.name).weight.numel() for layer in plan_layers(model)]
    assert sum(body) == 267_264  # docs/methods.md 3.3
    assert len(body) == 18
    extra = 2 if shortcut == "projection" else 0
    assert len(plan_layers(model, "all")) == 20 + extra


def test_a_padded_shortcut_takes_every_second_pixel_and_adds_zero_channels() -> None:
    x = torch.randn(2, 16, 8, 8)
    out = PaddedShortcut(16, 32)(x)
    assert out.shape == (2, 32, 4, 4)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


PRETRAINED = "weights/resnet20-cifar10/resnet20-12fca82f.th"


def test_the_public_checkpoint_of_resnet20_classifies_cifar10() -> None:
    folder = os.environ.get("BITFRONT_DATA")
    if not folder or not (Path(folder) / PRETRAINED).is_file():
        pytest.skip(f"no {PRETRAINED} in BITFRONT_DATA")
    if not DATASETS.get("cifar10").is_there(folder):
        pytest.skip("no CIFAR-10 in BITFRONT_DATA")
    stored = torch.load(Path(folder) / PRETRAINED, map_location="cpu", weights_only=True)
    state = {key.removeprefix("module."): t for key, t in stored["state_dict"].items()}
    model = build_model("resnet20", {}, (3, 32, 32), 10)
    model.load_state_dict(state, strict=True)
    images = load_test("cifar10", folder, "imagenet").take(2000, seed=0)
    assert evaluate(model, images)["val_accuracy"] > 0.91
    other = load_test("cifar10", folder).take(2000, seed=0)
    assert not torch.equal(images.x, other.x)


def test_dropout_drops_in_training_only() -> None:
    torch.manual_seed(0)
    model = build_model("mlp", {"dropout": 0.5, "width": 32}, (4,), 3)
    x = torch.randn(8, 4)
    assert not torch.equal(model.train()(x), model(x))
    assert torch.equal(model.eval()(x), model(x))


# --- activations --------------------------------------------------------------------------------


def test_binrelu_is_the_maximum_with_minus_one() -> None:
    x = torch.tensor([-2.0, -0.5, 3.0, -1.0, 0.0], requires_grad=True)
    out = BinReLU()(x)
    assert out.tolist() == [-1.0, -0.5, 3.0, -1.0, 0.0]
    out.backward(torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0]))
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 20.0, 30.0, 0.0, 50.0]


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 4, 4)])
def test_rprelu_shifts_before_and_after_each_channel(shape: tuple[int, ...]) -> None:
    act = RPReLU(2)
    with torch.no_grad():
        act.before.copy_(torch.tensor([0.5, 0.0]))
        act.after.copy_(torch.tensor([0.1, 0.0]))
    x = torch.zeros(shape)
    torch.testing.assert_close(act(x)[:, 0], torch.full_like(x[:, 0], -0.025))
    torch.testing.assert_close(act(x + 2)[:, 0], torch.full_like(x[:, 0], 1.6))
    torch.testing.assert_close(act(x - 2)[:, 1], torch.full_like(x[:, 1], -0.5))
    torch.testing.assert_close(act(x + 2)[:, 1], torch.full_like(x[:, 1], 2.0))


# --- networks of others -------------------------------------------------------------------------


def test_a_torchvision_network_takes_a_plan() -> None:
    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=5)
    layers = plan_layers(model)
    assert len(layers) == 16
    assert not {"conv1", "fc"} & {layer.name for layer in layers}
    plan = ("BWF" * 6)[: len(layers)]
    made = apply_plan(model, layers, plan, build_method("bnn", {"scale": "channel"}))
    assert [layer.level for layer in made] == [letter for letter in plan if letter != "F"]
    out = model(torch.randn(8, 3, 64, 64))
    assert out.shape == (8, 5)
    out[:, 0].square().sum().backward()
    # Behind a ReLU every sign is +1, so B layers of this network may hear nothing.
    assert all(layer.latent.grad.abs().sum() > 0 for layer in made if layer.level == "W")
    verify_binary(model, made)


def test_a_torchvision_network_has_the_published_costs() -> None:
    table = cost_table("torchvision/resnet18", {}, (3, 224, 224), 1000)
    assert table.totals("F" * 16)["flops"] == 1_821_012_480
    assert table.totals("B" * 16)["flops_pct"] == pytest.approx(9.3862, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "millions", "giga_macs", "layers", "blocks", "stages"),
    [
        ("vit-b16", 86.57, 17.56, 48, 12, 1),
        ("deit-t", 5.72, 1.25, 48, 12, 1),
        ("deit-s", 22.05, 4.60, 48, 12, 1),
        ("deit-b", 86.57, 17.56, 48, 12, 1),
        ("swin-t", 28.29, 4.49, 48, 12, 4),
        ("resnet50", 25.56, 4.09, 48, 16, 4),
    ],
)
def test_a_network_by_name_has_the_published_size(
    name, millions, giga_macs, layers, blocks, stages
) -> None:
    table = cost_table(name, {}, (3, 224, 224), 1000)
    assert table.parameters / 1e6 == pytest.approx(millions, abs=0.01)
    assert sum(row.macs for row in table.layers) / 1e9 == pytest.approx(giga_macs, abs=0.01)
    assert len(table.plan_layers) == layers
    assert len({layer.block for layer in table.plan_layers}) == blocks
    assert len({layer.stage for layer in table.plan_layers}) == stages


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_blocks_are_skipped_as_often_as_the_yaml_says_whatever_timm_would_do(share) -> None:
    """The class of Swin-T has a tenth as its own default, which a 0 did not replace."""
    with torch.device("meta"):
        model = build_model("swin-t", {"drop_path": share}, (3, 224, 224), 10)
    rates = [getattr(module, "drop_prob", 0.0) for module in model.modules()]
    assert max(rates) == pytest.approx(share)


def test_attention_is_counted_in_full_precision_under_any_plan() -> None:
    table = cost_table("deit-t", {}, (3, 32, 32), 10)
    products = [row for row in table.rows("B" * 48) if row.kind == "product"]
    assert [row.name for row in products] == [f"blocks.{i}.attn.product" for i in range(12)]
    tokens, width = 14 * 14 + 1, 192
    for row in products:
        assert (row.level, row.costs["bytes"]) == ("F", 0)
        assert row.macs == row.costs["flops"] == row.costs["ops64"] == 2 * tokens**2 * width
    names = [row.name for row in table.layers]
    assert names.index("blocks.0.attn.product") == names.index("blocks.0.attn.proj") + 1


def test_a_linear_layer_counts_for_every_token_whatever_the_layout_of_the_tokens() -> None:
    table = cost_table("swin-t", {}, (3, 224, 224), 10)
    macs = {row.name: row.macs for row in table.layers}
    assert macs["layers.0.blocks.0.mlp.fc1"] == 56 * 56 * 96 * 384
    assert macs["layers.0.blocks.0.attn.qkv"] == 64 * 49 * 96 * 288


@pytest.mark.parametrize(
    ("name", "first", "block", "stage"),
    [
        ("timm/deit_tiny_distilled_patch16_224", "blocks.0.attn.qkv", "blocks.0", "blocks"),
        (
            "swin-t",
            "layers.0.blocks.0.attn.qkv",
            "layers.0.blocks.0",
            "layers.0",
        ),
        ("timm/efficientnet_b0", "blocks.0.0.conv_dw", "blocks.0.0", "blocks.0"),
        ("torchvision/mobilenet_v2", "features.1.conv.0.0", "features.1", "features"),
        (
            "torchvision/densenet121",
            "features.denseblock1.denselayer1.conv1",
            "features.denseblock1.denselayer1",
            "features.denseblock1",
        ),
    ],
)
def test_blocks_and_stages_of_other_networks_are_read_from_their_names(
    name, first, block, stage
) -> None:
    table = cost_table(name, {}, (3, 64, 64), 10)
    assert table.plan_layers[0] == PlanLayer(first, block, stage)
    assert not any("head" in layer.name.split(".") for layer in table.plan_layers)
    assert not any("downsample" in layer.name for layer in table.plan_layers)


@pytest.mark.parametrize(
    ("name", "params", "shape", "message"),
    [
        ("timm/deit_tiny_patch16_2244", {}, (3, 32, 32), "did you mean 'deit_tiny_patch16_224'"),
        ("torchvision/resnet51", {}, (3, 32, 32), "did you mean 'resnet50'"),
        ("tim/resnet50", {}, (3, 32, 32), "unknown library 'tim'.* did you mean 'timm'"),
        ("deit-t", {"image_size": 30}, (3, 32, 32), "patches of 16\n  nearest: image_size: 32"),
        ("deit-t", {"image_size": 4}, (3, 32, 32), "patches of 16\n  nearest: image_size: 16"),
        ("tinyvit", {"patch": 5}, (1, 28, 28), "not made of patches of 5\n  nearest: 4"),
        ("deit-t", {}, (2,), r"takes images, not inputs of shape \(2,\)"),
        ("torchvision/inception_v3", {}, (3, 32, 32), "do not fit the model"),
        ("timm/resnet18", {"attention_norm": True}, (3, 32, 32), "has no attention"),
        ("resnet50", {}, (2, 32, 32), "takes 1 or 3 channels, not 2"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_trained(name, params, shape, message) -> None:
    with pytest.raises(UserError, match=message):
        cost_table(name, params, shape, 10)


def test_without_timm_the_error_says_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in ("timm/resnet18", "deit-t", "tinyvit"):
        with pytest.raises(UserError, match=f"'{name}' needs timm.*\n  pip install timm"):
            build_model(name, {}, (3, 32, 32), 10)


def test_images_are_resized_to_what_a_transformer_was_made_for() -> None:
    with torch.device("meta"):
        made = build_model("deit-t", {}, (1, 28, 28), 10)
        told = build_model("deit-t", {"image_size": 32}, (1, 28, 28), 10)
    assert made.pos_embed.shape == (1, 14 * 14 + 1, 192)
    assert told.pos_embed.shape == (1, 2 * 2 + 1, 192)


def test_a_grey_image_is_a_colour_image_with_equal_channels() -> None:
    torch.manual_seed(0)
    grey = build_model("torchvision/squeezenet1_1", {}, (1, 32, 32), 5).eval()
    torch.manual_seed(0)
    colour = build_model("torchvision/squeezenet1_1", {}, (3, 32, 32), 5).eval()
    x = torch.randn(2, 1, 32, 32)
    assert torch.equal(grey(x), colour(x.repeat(1, 3, 1, 1)))


def test_an_added_norm_stands_between_the_projection_and_the_residual_sum() -> None:
    torch.manual_seed(0)
    model = build_model("tinyvit", {"depth": 1, "attention_norm": True}, (1, 8, 8), 10).eval()
    block, x = model.blocks[0], torch.randn(2, 5, 64)
    attention = block.attn
    assert attention.added_norm.weight.eq(1).all()
    assert attention.added_norm.bias.eq(0).all()
    projected: list[torch.Tensor] = []
    attention.proj.register_forward_hook(lambda module, args, out: projected.append(out))
    normed = attention(block.norm1(x))
    torch.testing.assert_close(normed, nn.functional.layer_norm(projected[0], (64,)))
    after = x + normed
    torch.testing.assert_close(block(x), after + block.mlp(block.norm2(after)))


# --- the layout of memory -----------------------------------------------------------------------


def with_strided_projection(inside: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, inside, 3, padding=1), nn.Conv2d(inside, 16, 1, stride=2))


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        (with_strided_projection(7), torch.preserve_format),
        (with_strided_projection(8), torch.channels_last),
        (nn.Sequential(nn.Conv2d(4, 16, 3, stride=2)), torch.channels_last),
        (nn.Sequential(nn.Conv2d(4, 16, 1)), torch.channels_last),
        (nn.Sequential(nn.Linear(4, 4)), torch.preserve_format),
    ],
)
def test_channels_last_is_for_convolutions_that_survive_it(model, layout) -> None:
    assert memory_format(model) is layout


NARROW = """
import torch
from torch import nn
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.training.network import memory_format

for width in range(1, 8):
    net = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 2 * width, 1, stride=2),
        nn.Flatten(), nn.Linear(2 * width * 16, 4),
    )
    net = net.to(memory_format=memory_format(net))
    x = torch.randn(48, 3, 8, 8)
    if memory_format(net) is torch.channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    for _ in range(60):
        net(x).square().mean().backward()

for width in (4, 7):
    spec = TrialSpec.model_validate({
        "task": {"dataset": "digits", "model": {"name": "cresnet", "depth": 8, "width": width},
                 "epochs": 1, "batch_size": 48, "subset": 240},
        "method": "bnn", "plan": "FBFBFB"})
    Training(spec, *search_data(spec.task)).epoch()
print("alive")
"""


def test_narrow_networks_train_without_corrupting_the_heap() -> None:
    """In a process of its own: torch 2.15 would take this one down with it."""
    run = subprocess.run(
        [sys.executable, "-c", NARROW], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip() == "alive"
