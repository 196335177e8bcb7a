"""What the sampler `free-cost` computes; it is declared in the folder above."""
