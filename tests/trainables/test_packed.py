"""Claims about packed checkpoints: the same logits bit for bit, one bit a weight, no pickle, and
any damage is a clear error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from bitfront.spaces.costs import costs_of
from bitfront.trainables import packed
from bitfront.trainables.cost import cost_table, task_cost_table
from bitfront.trainables.errors import UserError
from bitfront.trainables.packed import pack_bits, unpack_bits

pytestmark = pytest.mark.slow

MLP = {"name": "mlp", "depth": 3, "width": 21}
NARROW = {"name": "cresnet", "depth": 8, "width": 5}
WIDE = {"name": "cresnet", "depth": 8, "width": 8, "activation": "rprelu"}

TINY = {"name": "tinyvit", "depth": 2, "width": 16, "heads": 2, "attention_norm": True}

CASES = [
    ("fp", MLP, "FF", "body", {}),
    ("bnn", MLP, "BW", "body", {}),
    ("bc", MLP, "WBFB", "all", {"scale": "layer"}),
    ("bnn++", MLP, "BBBB", "all", {"scale": "channel"}),
    ("bnn+", NARROW, "BBBBBB", "body", {"scale": "channel"}),
    ("bnn++", NARROW, "FWBFWB", "body", {}),
    ("bnn", WIDE, "WBBFBB", "body", {"scale": "layer"}),
    ("bnn++", WIDE, "BBBBBBWBBB", "all", {"scale": "channel"}),
    ("bnn", MLP, "AAAA", "all", {"scale": "channel", "acc_bits": 4}),
    ("ede+", NARROW, "AWBFAA", "body", {"scale": "layer", "standardize": True}),
    ("bc", NARROW, "AAWBAA", "body", {"acc_bits": 5, "acc_slope": 4.0}),
    ("react", NARROW, "ABWFBA", "body", {"scale": "learned"}),
    ("react", MLP, "BABA", "all", {}),
    ("r-bnn", NARROW, "WABBAF", "body", {"scale": "power2", "rotate": True}),
    ("pq", MLP, "WBAF", "all", {"scale": "channel"}),
    ("ptb", MLP, "WWWW", "all", {}),
    ("bnn++", TINY, "WWWWBBBF", "body", {"scale": "layer"}),
    ("bnn", TINY, "WWWWBBBFBB", "all", {"scale": "channel"}),
    ("react", TINY, "AAABBWAF", "body", {"scale": "channel"}),
]


@pytest.fixture
def one(make_spec, start, finish, tmp_path: Path) -> Path:
    """A small packed network."""
    training = finish(start(make_spec("bnn", plan="BW", model=MLP, epochs=1)))
    path = tmp_path / "packed.safetensors"
    packed.save(training.network, training.spec, path, {"test_accuracy": 0.5})
    return path


# --- the round trip -----------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.sampled_from([-1.0, 1.0]), min_size=1, max_size=70))
def test_bits_survive_packing(signs: list[float]) -> None:
    bits = pack_bits(torch.tensor(signs))
    assert bits.dtype == torch.uint8
    assert len(bits) == -(-len(signs) // 8)
    assert unpack_bits(bits, (len(signs),)).tolist() == signs


def test_bits_keep_their_shape_and_order() -> None:
    signs = torch.where(torch.rand(5, 3, 3, 3) > 0.5, 1.0, -1.0)
    assert torch.equal(unpack_bits(pack_bits(signs), (5, 3, 3, 3)), signs)
    strided = signs.contiguous(memory_format=torch.channels_last)
    assert torch.equal(unpack_bits(pack_bits(strided), (5, 3, 3, 3)), signs)


@pytest.mark.parametrize(("method", "model", "plan", "binarize", "params"), CASES)
def test_the_reloaded_network_has_the_same_logits_bit_for_bit(
    make_spec, start, finish, tmp_path: Path, method, model, plan, binarize, params
) -> None:
    spec = make_spec(
        method, plan=plan, params=params, model=model, binarize=binarize, data_dir=str(tmp_path)
    )
    training = finish(start(spec))
    path = tmp_path / "deep" / "packed.safetensors"
    size = packed.save(training.network, spec, path, {"test_accuracy": 0.25})
    torch.manual_seed(77)
    reloaded, spec_again, notes = packed.load(path)
    x = training.validation.x
    training.model.eval()
    with torch.no_grad():
        expected = training.model(x)
        assert torch.equal(reloaded(x), expected)
        assert expected.std() > 0.01
    assert not reloaded.training
    assert spec_again.model_dump(exclude={"task": {"data_dir"}}) == spec.model_dump(
        exclude={"task": {"data_dir"}}
    )
    assert str(tmp_path) not in path.read_bytes().decode("latin1")
    assert notes == {"test_accuracy": 0.25}
    assert size == costs_of(spec)["bytes"]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_file_is_not_much_larger_than_its_bytes(make_spec, start, tmp_path: Path) -> None:
    spec = make_spec("bnn", "B", model={"name": "cresnet20"})
    path = tmp_path / "packed.safetensors"
    size = packed.save(start(spec).network, spec, path, {})
    overhead = path.stat().st_size - size
    assert 0 < overhead < 12_000  # names, shapes and the spec
    full = task_cost_table(spec.task).totals("F" * 18)["bytes"]
    assert path.stat().st_size < full / 15


def test_the_file_is_safetensors_and_not_a_pickle(one: Path) -> None:
    content = one.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert header["__metadata__"]["format"] == "bitfront-packed"
    assert header["layers.1.weight.bits"]["dtype"] == "U8"
    assert content[:2] not in (b"\x80\x02", b"\x80\x04", b"PK")


def test_saving_again_replaces_the_file(make_spec, start, one: Path) -> None:
    spec = make_spec("bc", plan="WW", model=MLP)
    packed.save(start(spec).network, spec, one, {})
    assert packed.load(one)[1] == spec


# --- damage -------------------------------------------------------------------------------------


def test_a_missing_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.safetensors: no such file"):
        packed.load(tmp_path / "nothing.safetensors")


def test_a_folder_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a packed checkpoint"):
        packed.load(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"a text file, longer than a header\n" * 20, b"\xff" * 100]
)
def test_any_other_file_is_a_user_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"notes\.txt: not a packed checkpoint, or damaged"):
        packed.load(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_a_foreign_safetensors_file_is_a_user_error(tmp_path: Path, metadata) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"weight": torch.ones(3)}, path, metadata)
    with pytest.raises(UserError, match="a safetensors file, but not one that bitfront packed"):
        packed.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata, tensors: metadata.pop("notes"),
        lambda metadata, tensors: metadata.update(notes="{"),
        lambda metadata, tensors: metadata.update(notes="[" * 100_000),
        lambda metadata, tensors: metadata.update(notes="5"),
        lambda metadata, tensors: metadata.pop("spec"),
        lambda metadata, tensors: metadata.update(spec="[" * 100_000),
        lambda metadata, tensors: metadata.update(
            spec=metadata["spec"].replace('"plan":"BW"', '"plan":"B"')
        ),
        lambda metadata, tensors: metadata.update(
            spec=metadata["spec"].replace('"plan":"BW"', '"plan":"XX"')
        ),
        lambda metadata, tensors: tensors.update(
            {key: t.long() for key, t in tensors.items() if key.endswith(".bits")}
        ),
        lambda metadata, tensors: tensors.update(
            {key: t[:1] for key, t in tensors.items() if key.endswith(".bits")}
        ),
        lambda metadata, tensors: tensors.update(
            {key: t[:1] for key, t in tensors.items() if not key.endswith(".bits") and t.dim()}
        ),
        lambda metadata, tensors: tensors.update({"layers.1.weight.scale": torch.ones(3)}),
        lambda metadata, tensors: tensors.update(
            {"layers.1.input_quantizer.shift": torch.ones(2, 21)}
        ),
    ],
)
def test_content_that_cannot_be_is_a_user_error_though_its_checksum_is_right(
    one: Path, tmp_path: Path, change
) -> None:
    with safe_open(str(one), framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata())
    del metadata["sha256"]
    change(metadata, tensors)
    tensors = {key: tensor.contiguous() for key, tensor in tensors.items()}
    metadata["sha256"] = packed._digest(tensors, metadata)
    path = tmp_path / "changed.safetensors"
    save_file(tensors, path, metadata)
    with pytest.raises(UserError, match=r"changed.safetensors: (damaged|its tensors)"):
        packed.load(path)


@pytest.mark.parametrize("metadata", [{}, {"version": "99"}])
def test_a_file_of_another_version_is_a_user_error(tmp_path: Path, metadata: dict) -> None:
    path = tmp_path / "future.safetensors"
    save_file({"weight": torch.ones(3)}, path, {"format": "bitfront-packed"} | metadata)
    with pytest.raises(UserError, match=r"another version of bitfront|by a newer bitfront"):
        packed.load(path)


@pytest.mark.parametrize("share", [0.001, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_a_user_error(one: Path, share: float) -> None:
    content = one.read_bytes()
    one.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match="not a packed checkpoint, or damaged"):
        packed.load(one)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_payload_is_a_user_error(one: Path, where: float, bit: int) -> None:
    content = bytearray(one.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    content[begin + int(where * (len(content) - begin))] ^= 1 << bit
    damaged = one.with_name("damaged.safetensors")
    damaged.write_bytes(content)
    with pytest.raises(UserError, match="damaged: its checksum does not match"):
        packed.load(damaged)


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=st.floats(0, 1, exclude_max=True), byte=st.integers(0x20, 0x7E))
def test_a_changed_letter_in_the_header_is_a_user_error(one: Path, where, byte) -> None:
    content = bytearray(one.read_bytes())
    length = len(content[8 : 8 + int.from_bytes(content[:8], "little")].rstrip())
    position = 8 + int(where * length)
    if content[position] == byte:
        return
    content[position] = byte
    damaged = one.with_name("damaged.safetensors")
    damaged.write_bytes(content)
    with pytest.raises(UserError, match=r"damaged|another version|not one that bitfront"):
        packed.load(damaged)


def test_a_plan_that_was_changed_is_a_user_error(one: Path) -> None:
    content = one.read_bytes()
    changed = content.replace(b'\\"plan\\":\\"BW\\"', b'\\"plan\\":\\"WB\\"')
    assert changed != content
    one.write_bytes(changed)
    with pytest.raises(UserError, match="damaged"):
        packed.load(one)


# --- what is not binary, in half precision ------------------------------------------------------


def test_a_network_in_half_precision_reloads_to_the_logits_that_were_measured(
    make_spec, start, finish, tmp_path
) -> None:
    model = {"name": "tinyvit", "patch": 2, "depth": 2, "width": 32, "heads": 2}
    spec = make_spec("bnn", "W", params={"scale": "layer"}, model=model, epochs=2)
    training = finish(start(spec))
    x = training.validation.x
    exact = training.model.eval()(x)
    packed.round_rest(training.network, "float16")
    rounded = training.model(x)
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(exact, rounded, atol=0.02, rtol=0.02)
    path, whole = tmp_path / "half.safetensors", tmp_path / "whole.safetensors"
    size = packed.save(training.network, spec, path, {}, rest="float16")
    assert torch.equal(packed.load(path)[0](x), rounded)
    with safe_open(str(path), framework="pt") as file:
        assert file.metadata()["rest"] == "float16"
        assert file.get_tensor("patch_embed.proj.weight").dtype == torch.float16
    other = packed.save(training.network, spec, whole, {})
    rest = sum(
        t.numel() for k, t in training.model.state_dict().items() if "parametrizations" not in k
    )
    assert other - size == 2 * rest


def test_what_half_precision_cannot_hold_is_refused(make_spec, start) -> None:
    network = start(make_spec()).network
    with torch.no_grad():
        network.model.classifier.bias[0] = 1e6
    with pytest.raises(UserError, match=r"classifier\.bias does not fit float16: it holds 1e\+06"):
        packed.round_rest(network, "float16")


def test_a_packed_vit_b16_takes_a_24th_and_in_half_precision_a_27th() -> None:
    """By the cost table, which is exact; benchmarks/memory.py packs the network itself."""
    table = cost_table("vit-b16", {}, (3, 32, 32), 10)
    plan = "W" * len(table.plan_layers)
    full = 4 * table.parameters
    packed_bytes = table.totals(plan, "layer")["bytes"]
    binary = sum(row.costs["bytes"] for row in table.rows(plan, "layer") if row.planned)
    assert full / packed_bytes >= 24
    assert full / (binary + (packed_bytes - binary) / 2) >= 27
