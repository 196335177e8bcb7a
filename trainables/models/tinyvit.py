"""A vision transformer for small images, so that all of the transformer path trains on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.trainables.errors import UserError
from bitfront.trainables.models.base import MODELS, ModelInfo, Shape, check_image
from bitfront.trainables.models.library import ATTENTION_NORM, need_timm
from bitfront.trainables.parameters import Choice, Float, Int, Param

if TYPE_CHECKING:
    from torch import nn


def _build(
    shape: Shape,
    classes: int,
    patch: int,
    depth: int,
    width: int,
    heads: int,
    mlp_ratio: float,
    attention_norm: bool,
) -> nn.Module:
    check_image("tinyvit", shape)
    if shape[1] % patch or shape[2] % patch:
        fits = [p for p in range(1, min(shape[1:]) + 1) if shape[1] % p == shape[2] % p == 0]
        raise UserError(
            f"model.patch: images of {shape[1]}x{shape[2]} are not made of patches of {patch}",
            f"nearest: {min(fits, key=lambda p: abs(p - patch))}",
        )
    need_timm("tinyvit")
    from timm.models.vision_transformer import VisionTransformer

    from bitfront.trainables.models import surgery

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


MODELS.add(
    "tinyvit",
    ModelInfo(
        name="tinyvit",
        doc="vision transformer for small images; patch embedding, tokens, norms and classifier "
        "stay in full precision",
        build=_build,
        params={
            "patch": Param(4, Int(1, 64), "pixels of a patch's side", search=Choice((2, 4))),
            "depth": Param(4, Int(1, 48), "blocks", search=Int(2, 8)),
            "width": Param(64, Int(16, 2048, 16), "of a token", search=Int(32, 256, 32)),
            "heads": Param(4, Choice((1, 2, 4, 8, 16)), "of an attention", search=Choice((2, 4))),
            "mlp_ratio": Param(2.0, Float(0.5, 8.0), "hidden units for each of width"),
            "attention_norm": ATTENTION_NORM,
        },
    ),
)
