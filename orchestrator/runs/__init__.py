"""The run folder: everything about a run, and the truth about it."""
