"""Look at a search."""
