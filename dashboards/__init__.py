"""Figures, the report and the live page, drawn from `bitfront.search.results` alone. Where the
numbers come from is not known here."""
