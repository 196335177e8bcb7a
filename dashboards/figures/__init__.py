"""A picture per file, and the style they share."""
