"""What is wrong with a search that the types of its keys cannot say, a module per subject."""
