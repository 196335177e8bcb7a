"""`bf.load`, `bf.save`, `bf.cost` and `bf.select`: networks without a search."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables import packed
from bitfront.trainables.cost import trace
from bitfront.trainables.data import DATASETS, DatasetInfo
from bitfront.trainables.data.datasets import normalise, pixel_statistics
from bitfront.trainables.errors import UserError
from bitfront.trainables.plan import check_plan
from bitfront.trainables.task import TrialSpec


class LoadedNetwork(nn.Module):
    """A packed network: called like any module; `network` is the module itself."""

    def __init__(self, network: nn.Module, spec: TrialSpec, notes: Mapping[str, Any]) -> None:
        super().__init__()
        self.network = network
        self.spec = spec
        """what was trained: task, method, plan and seed"""
        self.notes = dict(notes)
        """what final training measured"""
        self.eval()

    @property
    def plan(self) -> str:
        """The letters of its layers."""
        return self.spec.plan

    @property
    def dataset(self) -> DatasetInfo:
        """What it was trained on: shape, classes, mean and deviation of pixels."""
        return DATASETS.get(self.spec.task.dataset)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.network(x)
        return out

    def preprocess(self, image: Any) -> Tensor:
        """A batch of one made of a PIL image, an array (height, width, channels) or a tensor
        (channels, height, width): resized and normalised as the training data were."""
        return _preprocessed(image, self.dataset, self.spec.task.normalize)


def load(path: str | os.PathLike[str]) -> LoadedNetwork:
    """The packed network in this file, in evaluation mode; it computes the same logits, bit for
    bit, as the one that was saved."""
    return LoadedNetwork(*packed.load(Path(path)))


def cost(
    model: nn.Module, plan: str, shape: tuple[int, ...], scope: str = "body"
) -> dict[str, float]:
    """The costs of a planned network for inputs of `shape` (without the batch), by name, exact and
    known before training; one letter stands for all layers."""
    import copy

    try:
        table = trace(copy.deepcopy(model).to("meta"), tuple(shape), scope)
    except (NotImplementedError, RuntimeError) as error:
        raise UserError(f"cost: the network cannot be traced: {error}") from None
    layers = table.plan_layers
    letters = plan * len(layers) if len(plan) == 1 else plan
    return table.costs(check_plan(letters, layers))


def _preprocessed(image: Any, info: DatasetInfo, normalize: str) -> Tensor:
    import numpy as np
    from torchvision.transforms.functional import resize

    if isinstance(image, Tensor):
        x = image
    else:
        array = np.asarray(image)
        if array.ndim == 2:
            array = array[:, :, None]
        x = torch.from_numpy(array.copy()).permute(2, 0, 1)
    if x.dim() != len(info.shape):
        raise UserError(f"preprocess: an image has {len(info.shape)} dimensions, not {x.dim()}")
    channels = info.shape[0]
    if x.shape[0] != channels:
        if channels == 3 and x.shape[0] == 1:
            x = x.expand(3, -1, -1)
        elif channels == 1 and x.shape[0] == 3:
            x = x.float().mean(0, keepdim=True).to(x.dtype)
        else:
            raise UserError(f"preprocess: {x.shape[0]} channels, the network takes {channels}")
    if tuple(x.shape) != info.shape and len(info.shape) == 3:
        x = resize(x, list(info.shape[1:]), antialias=True)
    mean, std = pixel_statistics(info, normalize)
    from dataclasses import replace

    return normalise(x[None], replace(info, mean=mean, std=std))
