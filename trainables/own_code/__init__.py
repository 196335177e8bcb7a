"""Code of the user's own: classes and functions that a YAML names by file or module, such as
`my_net.py:MyNet`. Found, hashed without being run, run only where the user has named or trusted it,
and sent to the workers of a cluster."""

from bitfront.trainables.own_code.bundles import Bundle, bundle, unpack
from bitfront.trainables.own_code.loading import load_object
from bitfront.trainables.own_code.places import find_path, look_in, settle
from bitfront.trainables.own_code.reference import (
    Reference,
    is_reference,
    parse,
    references_in,
    shown,
)
from bitfront.trainables.own_code.trusted import is_trusted, received, trust

__all__ = [
    "Bundle",
    "Reference",
    "bundle",
    "find_path",
    "is_reference",
    "is_trusted",
    "load_object",
    "look_in",
    "parse",
    "received",
    "references_in",
    "settle",
    "shown",
    "trust",
    "unpack",
]
