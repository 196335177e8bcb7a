"""One turn of a driver at a search, from the first check to the last trial: what it does when
trials start, report and end, early stopping, repeats, and interrupts. Ray itself is in
`cluster`."""
