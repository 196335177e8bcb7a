"""Use a cluster."""
