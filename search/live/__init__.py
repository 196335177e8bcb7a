"""What a running search tells those who watch it, besides its ledger: the epochs of running trials,
the time left, its nodes. A file beside the ledger that the driver writes anew."""
