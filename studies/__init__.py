"""Whole studies on real images, a folder each: what the platform is for, from a network to a file
that runs."""
