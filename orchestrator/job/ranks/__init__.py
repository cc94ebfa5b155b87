"""On the host of every rank: the wrapper that starts its program, and what it needs."""
