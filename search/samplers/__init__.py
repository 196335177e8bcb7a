"""Who chooses the next point: Optuna's samplers and our own."""
