"""MLflow: the only package that writes to it, and its UI's server. What it shows is the ledger,
which is the truth."""
