"""What a trial trains: data, models, methods, plans, costs, training."""
