"""Gradient synchronization: the all-reduce over the grid, and the buckets of gradients that travel through it."""
