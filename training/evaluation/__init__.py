"""Top 1, top 5 and loss on the test set, of a model and of an ensemble."""
