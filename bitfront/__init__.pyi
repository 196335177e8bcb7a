from .api.binarizing import Binarized, binarize
from .api.networks import LoadedNetwork, cost, load, save
from .api.opened import ExportedRecipe, OpenedSearch, TrainedRecipe, open
from .api.searching import Search, run
from .trainables.errors import UserError

__all__ = [
    "Binarized",
    "ExportedRecipe",
    "LoadedNetwork",
    "OpenedSearch",
    "Search",
    "TrainedRecipe",
    "UserError",
    "binarize",
    "cost",
    "load",
    "open",
    "run",
    "save",
]
