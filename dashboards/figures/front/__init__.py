"""The front of one search or of several: interactive, as an image, as a table and as text."""
