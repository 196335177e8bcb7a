"""Any classifier of timm or torchvision by name, built without its weights so that nothing is
downloaded. Layers keep the names those libraries give them: their checkpoints fit."""

from __future__ import annotations

import importlib.util
from functools import lru_cache, partial
from typing import Any

import torch
from torch import nn

from bitfront.trainables.errors import UnknownNameError, UserError, did_you_mean
from bitfront.trainables.models import surgery
from bitfront.trainables.models.base import LIBRARIES, MODELS, ModelInfo, Shape, parameter
from bitfront.trainables.parameters import Choice, Float, Int, Param

IMAGE_SIZE = parameter(
    0,
    Int(0, 4096),
    "pixels that images are resized to; 0: what a transformer was made for, else the dataset's",
    search=Choice((32, 64, 128, 224)),
)
ATTENTION_NORM = parameter(
    False,
    Choice((False, True)),
    "one more LayerNorm after the projection of every attention (docs/methods.md 1.11)",
)
TIMM_PARAMS = {
    "image_size": IMAGE_SIZE,
    "attention_norm": ATTENTION_NORM,
    "drop_path": Param(0.0, Float(0.0, 0.9), "share of blocks skipped in training"),
}
# Networks to which torchvision adds auxiliary classifiers in training. They are built without: a
# plan is for a network with one output.
_WITH_SIDE_OUTPUTS = ("googlenet", "inception_v3")


def _check_image(called: str, shape: Shape) -> None:
    if len(shape) != 3:
        raise UserError(f"model.name: {called} takes images, not inputs of shape {shape}")


def need_timm(model: str) -> Any:
    """The timm module, or a UserError where it is not installed."""
    if importlib.util.find_spec("timm") is None:
        raise UserError(f"model '{model}' needs timm, which is not installed", "pip install timm")
    import timm

    return timm


def _build_timm(
    shape: Shape,
    classes: int,
    image_size: int,
    attention_norm: bool,
    drop_path: float,
    name: str,
    called: str,
) -> nn.Module:
    _check_image(called, shape)
    timm = need_timm(called)
    declared = timm.get_pretrained_cfg(name)
    options: dict[str, Any] = {"drop_path_rate": drop_path} if drop_path else {}
    size = (image_size, image_size) if image_size else shape[1:]
    if declared.fixed_input_size:
        size = size if image_size else declared.input_size[1:]
        options["img_size"] = size
    try:
        model: nn.Module = timm.create_model(
            name, pretrained=False, num_classes=classes, in_chans=shape[0], **options
        )
    except (TypeError, AssertionError, ArithmeticError) as error:
        raise UserError(_no_fit(called, size, error)) from None
    if not drop_path:  # some have another default of their own
        surgery.keep_all_paths(model)
    patch = surgery.patch_size(model)
    if any(side % p for side, p in zip(size, patch, strict=True)):
        raise UserError(
            _no_fit(called, size, f"it cuts them into patches of {patch[0]}"),
            f"nearest: image_size: {max(1, round(size[0] / patch[0])) * patch[0]}",
        )
    if size != shape[1:]:
        surgery.resize_input(model, size)
    if attention_norm:
        surgery.add_attention_norms(model, called)
    return model


def _build_torchvision(
    shape: Shape, classes: int, image_size: int, name: str, called: str
) -> nn.Module:
    _check_image(called, shape)
    from torchvision import models

    options: dict[str, Any] = {}
    if name in _WITH_SIDE_OUTPUTS:
        options = {"aux_logits": False, "init_weights": True}
    size = (image_size, image_size) if image_size else shape[1:]
    # Only torchvision's vision transformers take an image size; they refuse images of any other.
    if name.startswith("vit_"):
        options["image_size"] = size[0]
    make = partial(models.get_model, name, weights=None, num_classes=classes, **options)
    model: nn.Module
    try:
        model = make()
    except NotImplementedError:  # it computes widths with tensors, which the meta device cannot
        device = torch.get_default_device()
        with torch.device("cpu"):
            model = make().to(device)
    except (TypeError, AssertionError, RuntimeError) as error:
        raise UserError(_no_fit(called, size, error)) from None
    if size != shape[1:]:
        surgery.resize_input(model, size)
    if shape[0] != 3:
        surgery.repeat_grey(model, called, shape[0])
    return model


def _no_fit(called: str, size: tuple[int, ...], why: object) -> str:
    return f"model.image_size: {called} cannot take images of {size[0]} pixels: {why}"


def _timm(name: str) -> ModelInfo:
    called = f"timm/{name}"
    timm = need_timm(called)
    if not timm.is_model(name):
        hint = did_you_mean(name, timm.list_models())
        raise UnknownNameError(f"unknown model '{called}', {hint}")
    build = partial(_build_timm, name=name, called=called)
    return ModelInfo(called, f"{name} of timm, not pretrained", build, TIMM_PARAMS)


def _torchvision(name: str) -> ModelInfo:
    from torchvision import models

    called = f"torchvision/{name}"
    known = models.list_models(module=models)
    if name not in known:
        raise UnknownNameError(f"unknown model '{called}', {did_you_mean(name, known)}")
    build = partial(_build_torchvision, name=name, called=called)
    params = {"image_size": IMAGE_SIZE}
    return ModelInfo(called, f"{name} of torchvision, not pretrained", build, params)


LIBRARIES["timm"] = lru_cache(maxsize=64)(_timm)
LIBRARIES["torchvision"] = lru_cache(maxsize=64)(_torchvision)


def _name_timm(called: str, name: str, doc: str) -> None:
    build = partial(_build_timm, name=name, called=called)
    MODELS.add(called, ModelInfo(called, f"{doc} (timm/{name})", build, TIMM_PARAMS))


_name_timm("vit-b16", "vit_base_patch16_224", "ViT-B/16, 12 blocks of width 768")
_name_timm("deit-t", "deit_tiny_patch16_224", "DeiT-T, 12 blocks of width 192")
_name_timm("deit-s", "deit_small_patch16_224", "DeiT-S, 12 blocks of width 384")
_name_timm("deit-b", "deit_base_patch16_224", "DeiT-B, 12 blocks of width 768")
_name_timm("swin-t", "swin_tiny_patch4_window7_224", "Swin-T, 12 blocks in 4 stages")
_name_timm("nest-t", "nest_tiny_jx", "NesT-T, 12 blocks in 3 levels")
MODELS.add(
    "resnet50",
    ModelInfo(
        "resnet50",
        "ResNet-50 of ImageNet (torchvision/resnet50)",
        partial(_build_torchvision, name="resnet50", called="resnet50"),
        {"image_size": IMAGE_SIZE},
    ),
)
