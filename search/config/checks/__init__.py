"""Checks of a search that the types of its keys cannot express, a module per subject. Mistakes of
type are found by the schema."""
