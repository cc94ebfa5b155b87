"""Buckets: which gradients are reduced together while backward runs.

A plan says how many gradients each bucket holds, the gradients in the order in which they become ready. The plans
themselves (exact, shapes, layout, measured_cost) import no torch: the prediction makes the same.
"""
