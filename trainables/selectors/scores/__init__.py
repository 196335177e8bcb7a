"""What trained selectors compute on a network: switched layers, curvature, a relaxation. What the
package offers is listed in `__init__.pyi`; torch is imported when one of these names is used, so
that selectors can be listed without it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
