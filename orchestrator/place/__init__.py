"""Hosts and switches, cost of an all-reduce, placement and prediction, without a scheduler. Pure functions."""
