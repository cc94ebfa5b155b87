"""Data sets, and the order in which a run sees their samples."""
