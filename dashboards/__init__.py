"""Figures and pages of searches, made from what `search` reads."""
