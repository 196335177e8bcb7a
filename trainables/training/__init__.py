"""One training run: network, loop, losses, what it starts from, what is measured. What the package
offers is listed in `__init__.pyi`; torch is imported when one of these names is used, so that a
worker is ready before it has imported torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
