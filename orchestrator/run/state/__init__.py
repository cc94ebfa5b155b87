"""The state of runs: one scheduler query for all of them, one run followed to its end, tables and logs."""
