"""The time of an all-reduce: one file per algorithm.

Notation as in the literature: a latency per step, B bytes per second in one direction, n bytes reduced, N ranks. The
additions themselves are not charged. Every formula says where it is from: verified (read in the source), derived (by
arithmetic from the one above it) or from memory.
"""
