"""The report and the live page."""
