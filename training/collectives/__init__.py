"""Means over all ranks: the torus all-reduce over a mesh, and the other ways to compare it with."""
