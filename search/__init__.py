"""A search, from its YAML to a front: configuration, ledger, samplers, Ray Tune, MLflow and
recipes. Knows no layer, no quantizer and no figure."""

import os

# Read by MLflow and Ray when they are imported, and inherited by every process we start. No usage
# statistics are sent unless the user asks for that.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# MLflow prints the address of every run that ends, with the password in it.
os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
