"""Binarization methods, a family per file. A new file in this folder is found by itself. Listing
methods does not import torch."""

from bitfront.trainables.methods.base import METHODS, Method, build_method

__all__ = ["METHODS", "Method", "build_method"]
