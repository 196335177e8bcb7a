"""How the next point of a search is chosen. A sampler is declared in a file of this folder, which
is found by itself: Optuna's in `optuna_samplers`, our own in `free_cost` with its computations in
`surrogate/`. Trials, limits and duplicates are the ledger's."""
