"""Overlap of the all-reduce with the backward pass: which gradients are reduced together, in one bucket."""
