"""The machines without a scheduler: hosts and switches, cost, placement, prediction. Pure functions."""
