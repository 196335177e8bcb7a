"""Architectures, one file a family. Importing this package registers them all, without torch."""

from bitfront.trainables.models import (
    bayesbinn,
    brn,
    cresnet,
    imagenet,
    library,
    mlp,
    plain_resnet,
    resnet20,
    siamfc,
    tinyvit,
)
from bitfront.trainables.models.base import MODELS, ModelInfo, Shape, build_model

__all__ = [
    "MODELS",
    "ModelInfo",
    "Shape",
    "bayesbinn",
    "brn",
    "build_model",
    "cresnet",
    "imagenet",
    "library",
    "mlp",
    "plain_resnet",
    "resnet20",
    "siamfc",
    "tinyvit",
]
