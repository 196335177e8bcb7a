"""What a search decides from its trials, beside the next point: what it may still expect, when it
ends, and which points keep the limits on what is measured."""
