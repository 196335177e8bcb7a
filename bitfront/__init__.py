"""Find the best binary neural network for a budget. `import bitfront as bf` offers what
docs/python.md describes, and imports nothing heavy before it is used; the command is in `cli`.

The other rooms are imported as `bitfront.search`, `bitfront.spaces` and so on: in a checkout they
are folders beside this one, linked into it; an installed package has them inside."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
