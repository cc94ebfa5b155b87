"""How the ranks of a training come to the same weights: gradients in buckets, averaged while backward runs."""
