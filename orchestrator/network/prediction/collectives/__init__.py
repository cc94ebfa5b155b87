"""Lower bounds, and the all-reduces of programs that used neither NCCL nor gloo: one file per algorithm.

Notation as in the literature: a latency per step, B bytes per second in one direction, n bytes reduced, N ranks. The
time of the additions is left out. Every formula names its source and how it was checked: verified (read in the source),
derived (by arithmetic from the source) or from memory.
"""
