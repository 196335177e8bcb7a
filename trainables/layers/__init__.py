"""Binary layers: quantizers, latents, pruned weights, how a plan is applied and verified. What the
room offers is listed in `__init__.pyi`; torch is imported when one of these names is used, so that
methods can be listed without it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
