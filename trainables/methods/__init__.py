"""Binarization methods, one file a family. Importing this package registers them all, without
torch: a method's quantizers are looked up when a network is built."""

from trainables.methods import pcpp
from trainables.methods.base import METHODS, Method, build_method

__all__ = ["METHODS", "Method", "build_method", "pcpp"]
