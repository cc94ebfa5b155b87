"""Hyper-parameters as pure functions of progress; no torch."""
