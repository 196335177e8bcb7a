"""The Optuna study on disk, which is the truth about a search, and the folder around it. What a
front or a page makes of it is in `search.results`."""
