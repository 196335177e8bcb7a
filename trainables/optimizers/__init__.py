"""Optimizers of binary weights, one per file, as ordinary torch optimizers: usable without the rest
of bitfront. What a network multiplies with while they train is in `layers.latents`. What the
package offers is listed in `__init__.pyi`; torch is imported when one of these names is used, so
that methods can be listed without it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
