"""Points of a front as recipes: export, final training, replay."""
