"""Architectures, a family per file: the network and its declaration side by side. A new file in
this folder is found by itself. Importing this package does not import torch; asking for a model
does."""

from bitfront.trainables.models.base import MODELS, ModelInfo, Shape, build_model

__all__ = ["MODELS", "ModelInfo", "Shape", "build_model"]
