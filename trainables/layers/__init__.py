"""Binary layers: quantizers, latents, pruned weights, how a plan is applied and verified. The names
of the package are listed in `__init__.pyi`; torch is imported when one of them is used, so that
listing methods does not import it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
