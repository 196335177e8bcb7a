"""What tests and benchmarks are run on: searches whose training is simulated, servers, clusters and
faults on this machine. Not part of the installed package."""
