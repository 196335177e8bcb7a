"""The verbs of the command line: the options and the action of each, side by side."""
