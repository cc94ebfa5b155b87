"""One step of a rank: forward and backward, and how the weights then move."""
