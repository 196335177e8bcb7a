"""Optimizers of binary weights, one per file, as ordinary torch optimizers that work without the
rest of bitfront. The weights that a layer computes from their parameters are in `layers.latents`.
The names of the package are listed in `__init__.pyi`; torch is imported when one of them is used,
so that listing methods does not import it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
