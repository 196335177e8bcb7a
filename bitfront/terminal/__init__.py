"""What a person at a terminal sees: tables, plans, progress."""
