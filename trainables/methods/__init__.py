"""Binarization methods, a family per file. New files in this folder are imported automatically.
Listing methods does not import torch."""

from bitfront.trainables.methods.base import METHODS, Method, build_method

__all__ = ["METHODS", "Method", "build_method"]
