"""Data sets, and the order of their samples in a run."""
