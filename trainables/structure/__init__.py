"""What a network is made of: the layers a plan can decide, where they have their weights, and what
each of them is for, found by following one example through the network."""
