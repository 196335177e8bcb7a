"""Vision transformers in the files of their authors' JAX code: the layout is written here from its
description, and read as timm's own loader reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer

from bitfront.trainables.errors import UserError
from bitfront.trainables.training.checkpoint_files import load_weights, read_checkpoint

WIDTH, HEADS, DEPTH, CLASSES = 12, 3, 2, 5


def small_vit() -> VisionTransformer:
    return timm.create_model(
        "vit_tiny_patch16_224",
        img_size=32,
        embed_dim=WIDTH,
        depth=DEPTH,
        num_heads=HEADS,
        num_classes=CLASSES,
    )


def arrays(newer: bool, prefix: str = "") -> dict[str, np.ndarray]:
    """A file of JAX: outputs of kernels last, attention by heads; the newer layout numbers the
    modules of a block by kind and has its positions at the top."""
    rng = np.random.default_rng(0)
    each = WIDTH // HEADS
    found: dict[str, tuple[int, ...]] = {
        "cls": (1, 1, WIDTH),
        "embedding/kernel": (16, 16, 3, WIDTH),
        "embedding/bias": (WIDTH,),
        ("" if newer else "Transformer/posembed_input/") + "pos_embedding": (1, 5, WIDTH),
        "Transformer/encoder_norm/scale": (WIDTH,),
        "Transformer/encoder_norm/bias": (WIDTH,),
        "head/kernel": (WIDTH, CLASSES),
        "head/bias": (CLASSES,),
    }
    attention, mlp, second = (0, 0, 1) if newer else (1, 3, 2)
    for i in range(DEPTH):
        block = f"Transformer/encoderblock_{i}/"
        for norm in (0, second):
            found[f"{block}LayerNorm_{norm}/scale"] = (WIDTH,)
            found[f"{block}LayerNorm_{norm}/bias"] = (WIDTH,)
        for part in ("query", "key", "value"):
            at = f"{block}MultiHeadDotProductAttention_{attention}/{part}"
            found[f"{at}/kernel"] = (WIDTH, HEADS, each)
            found[f"{at}/bias"] = (HEADS, each)
        at = f"{block}MultiHeadDotProductAttention_{attention}/out"
        found[f"{at}/kernel"] = (HEADS, each, WIDTH)
        found[f"{at}/bias"] = (WIDTH,)
        for layer, shape in enumerate(((WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))):
            found[f"{block}MlpBlock_{mlp}/Dense_{layer}/kernel"] = shape
            found[f"{block}MlpBlock_{mlp}/Dense_{layer}/bias"] = shape[1:]
    return {prefix + k: rng.normal(size=s).astype(np.float32) for k, s in found.items()}


@pytest.mark.parametrize(
    ("newer", "prefix"), [(False, ""), (False, "opt/target/"), (True, "params/")]
)
def test_a_vision_transformer_of_jax_is_read_as_timm_reads_it(tmp_path, newer, prefix) -> None:
    file = tmp_path / "vit.npz"
    np.savez(file, **arrays(newer, prefix))
    theirs, ours = small_vit(), small_vit()
    theirs.load_pretrained(str(file))
    fit = load_weights(ours, read_checkpoint(file), str(file))
    assert fit.complete
    other = theirs.state_dict()
    assert all(torch.equal(value, other[name]) for name, value in ours.state_dict().items())


def test_a_head_of_other_classes_is_left_out(tmp_path) -> None:
    file = tmp_path / "vit.npz"
    content = arrays(newer=False)
    content["head/kernel"], content["head/bias"] = np.zeros((WIDTH, 9), "f"), np.zeros(9, "f")
    np.savez(file, **content)
    assert load_weights(small_vit(), read_checkpoint(file), "f").other_shape == (
        "head.weight",
        "head.bias",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"w": np.zeros(3)}, "no embedding/kernel in it"),
        ({"embedding/kernel": np.zeros(3, "V2")}, "not bfloat16"),
        ({"embedding/kernel": np.zeros((1, 1, 3, 4))}, "embedding/bias is missing"),
        ({"embedding/kernel": np.array([{}], dtype=object)}, "cannot be read as npz"),
    ],
)
def test_other_files_of_arrays_are_one_line(tmp_path, content, message) -> None:
    file = tmp_path / "other.npz"
    np.savez(file, **content)
    with pytest.raises(UserError, match=message):
        read_checkpoint(file)


def test_no_npz_at_all_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(UserError, match="cannot be read as npz"):
        read_checkpoint(tmp_path / "text.npz")
    with pytest.raises(UserError, match="no such file"):
        read_checkpoint(tmp_path / "none.npz")
