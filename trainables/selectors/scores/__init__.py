"""The scores that trained selectors compute on a network: losses after switching layers, curvature,
learned mixtures. The names of the package are listed in `__init__.pyi`; torch is imported when one
of them is used, so that listing selectors does not import it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
