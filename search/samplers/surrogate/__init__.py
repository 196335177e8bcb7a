"""The computations of the sampler `free-cost`: model, candidates and expected gain. Its declaration
is in `search.samplers.free_cost`."""
