"""Buckets: which gradients are reduced together while backward runs. Nothing here imports torch.

A plan says how many gradients each bucket holds, the gradients in the order in which they become ready.
"""
