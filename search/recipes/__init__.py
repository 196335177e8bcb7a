"""Points of a front as recipes: export, final training, replay. The only package that loads a test
set."""
