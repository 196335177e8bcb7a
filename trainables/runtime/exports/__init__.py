"""Networks as files that run elsewhere: one module per format, found in this folder. `deployment`
writes a file, runs it beside torch, and keeps it only where both predict the same. Nothing heavy is
imported before a file is written."""
