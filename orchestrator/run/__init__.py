"""Runs as they live: their states, their attempts, and the verbs that act on them."""
