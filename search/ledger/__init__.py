"""The Optuna study on disk, which is the truth about a search, and the folder around it."""
