from .api.binarizing import Binarized, binarize
from .api.deploying import deploy
from .api.networks import LoadedNetwork, cost, load, save
from .api.opened import ExportedRecipe, OpenedSearch, TrainedRecipe, open
from .api.searching import Search, run
from .api.selecting import select
from .api.tables import datasets, methods, models, selectors
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
    "datasets",
    "deploy",
    "load",
    "methods",
    "models",
    "open",
    "run",
    "save",
    "select",
    "selectors",
]
