"""Binarization methods, one file a family. Importing this package registers them all, without
torch: a method's quantizers are looked up when a network is built."""

import importlib
import pkgutil

from bitfront.trainables.methods.base import METHODS, Method, build_method

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["METHODS", "Method", "build_method"]
