"""Architectures, a family per file, each network with its declaration. New files in this folder are
imported automatically. Importing this package does not import torch; looking up a model does."""

from bitfront.trainables.models.base import MODELS, ModelInfo, Shape
from bitfront.trainables.models.building import build_model, unreal_model, with_activations

__all__ = ["MODELS", "ModelInfo", "Shape", "build_model", "unreal_model", "with_activations"]
