"""What may change between trials, and the searches that come with bitfront."""
