"""The state of runs: all of them by a single query of each scheduler, a run followed to its end, and what follows."""
