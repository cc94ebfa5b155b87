"""Keeps the weights of the ranks equal: gradients in buckets, averaged while backward runs."""
