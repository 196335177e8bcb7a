"""MLflow: the only place that writes it, and its server."""
