"""What a terminal shows: tables, plans, progress, sentences. The numbers come from
`bitfront.search`; which verb prints what is in `bitfront.verbs`."""
