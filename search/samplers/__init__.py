"""How the next point of a search is chosen. A sampler is declared in a file of this folder and
found by itself: Optuna's in `optuna_samplers`, our own in `free_cost` with its computations in
`surrogate/`. Limits and duplicates are checked in `search.ledger.proposals`."""
