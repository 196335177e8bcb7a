"""Run a search."""
