"""Predicts the time of a training before it is submitted: pure functions from published constants to seconds."""
