"""A vision transformer for small images, which makes experiments with transformers possible on a
CPU."""

from __future__ import annotations

from torch import nn

from bitfront.trainables.errors import UserError
from bitfront.trainables.models import surgery
from bitfront.trainables.models.base import MODELS, Shape, parameter
from bitfront.trainables.models.library import ATTENTION_NORM, need_timm
from bitfront.trainables.parameters import Choice, Float, Int


@MODELS.declare("tinyvit")
def tinyvit(
    shape: Shape,
    classes: int,
    *,
    patch: int = parameter(4, Int(1, 64), "pixels of a patch's side", search=Choice((2, 4))),
    depth: int = parameter(4, Int(1, 48), "blocks", search=Int(2, 8)),
    width: int = parameter(64, Int(16, 2048, 16), "of a token", search=Int(32, 256, 32)),
    heads: int = parameter(4, Choice((1, 2, 4, 8, 16)), "of an attention", search=Choice((2, 4))),
    mlp_ratio: float = parameter(2.0, Float(0.5, 8.0), "hidden units for each of width"),
    attention_norm: bool = ATTENTION_NORM,
) -> nn.Module:
    """Vision transformer for small images; patch embedding, tokens, norms and classifier stay in
    full precision."""
    if shape[1] % patch or shape[2] % patch:
        fits = [p for p in range(1, min(shape[1:]) + 1) if shape[1] % p == shape[2] % p == 0]
        raise UserError(
            f"model.patch: images of {shape[1]}x{shape[2]} are not made of patches of {patch}",
            f"nearest: {min(fits, key=lambda p: abs(p - patch))}",
        )
    need_timm("tinyvit")
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(
        img_size=(shape[1], shape[2]),
        patch_size=patch,
        in_chans=shape[0],
        num_classes=classes,
        embed_dim=width,
        depth=depth,
        num_heads=heads,
        mlp_ratio=mlp_ratio,
    )
    if attention_norm:
        surgery.add_attention_norms(model, "tinyvit")
    return model
