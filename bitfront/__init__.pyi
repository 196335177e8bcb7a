from .api.opened import ExportedRecipe, OpenedSearch, TrainedRecipe, open
from .api.searching import Search, run
from .trainables.errors import UserError

__all__ = [
    "ExportedRecipe",
    "OpenedSearch",
    "Search",
    "TrainedRecipe",
    "UserError",
    "open",
    "run",
]
