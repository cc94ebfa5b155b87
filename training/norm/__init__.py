"""Batch normalization for large trainings: which statistics it uses, and over which samples."""
