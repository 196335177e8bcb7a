"""The verbs of the command line: a file per verb in the folders of this package, which are the
groups of `bitfront --help`. What several verbs share lies beside the folders."""
