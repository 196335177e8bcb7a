"""One training run: network, loop, phases, losses, what it starts from."""
