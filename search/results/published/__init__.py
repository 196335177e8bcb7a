"""Results that a repository keeps, so that a page can be written from them without the ledgers."""
