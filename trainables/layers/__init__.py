"""Binary layers: quantizers, latents, pruned weights, how a plan is applied and verified."""
