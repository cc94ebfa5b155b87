"""One step of a rank: forward, backward, and the update of the weights."""
