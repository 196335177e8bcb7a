"""Searches read back: fronts, states, comparisons, rows of papers, the data of pictures. Drawing is
in `bitfront.dashboards`, writing in `search.ledger`."""
