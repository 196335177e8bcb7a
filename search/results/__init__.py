"""Searches read back: fronts, comparisons, rows of papers."""
