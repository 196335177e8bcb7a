"""Pictures of all trials of a search: how they learned, which methods and settings they had."""
