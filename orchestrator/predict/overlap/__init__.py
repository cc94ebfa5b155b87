"""Gradients that travel while backward still runs: which tensors to send together."""
