"""Train a point of the front to the end."""
