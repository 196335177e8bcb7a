"""One driver's turn at a search."""
