"""Tools that tests and benchmarks share: searches with simulated training, and servers, clusters
and faults on this machine. Not part of the installed package."""
