"""Pictures of networks: which layers are binary, what pruning keeps, quantizers and predictions."""
