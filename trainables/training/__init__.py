"""One training run: network, loop, losses, starting weights, evaluation, checkpoints. The names of
the package are listed in `__init__.pyi`; torch is imported when one of them is used, so that a
worker is ready before it has imported torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
