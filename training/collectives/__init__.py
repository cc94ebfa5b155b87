"""Means over all ranks: the torus all-reduce over a mesh, and other algorithms to compare it with."""
