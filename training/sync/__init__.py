"""Gradient synchronization: the 2-D torus all-reduce and the flat vector that travels through it."""
