"""The `bitfront` command: its verbs, and what a terminal shows. The other rooms are imported as
`bitfront.search`, `bitfront.spaces` and so on: in a checkout they are folders beside this one,
linked into it; an installed package has them inside."""
