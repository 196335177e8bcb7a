"""See what there is."""
