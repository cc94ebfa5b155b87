"""Overlap of communication with the backward pass: which tensors to reduce together, in buckets (groups)."""
