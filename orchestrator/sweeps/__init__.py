"""Sweeps: several runs from one run file, submitted together as arrays of jobs."""
