"""Buckets: the gradients that are reduced together while backward runs.

A plan gives the number of gradients of each bucket; the gradients are in the order in which they become ready. The
plans themselves (exact, shapes, layout, measured_cost) import no torch, because the prediction makes the same plans.
"""
