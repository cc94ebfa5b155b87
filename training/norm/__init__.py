"""Batch normalization as large trainings do it: what is normalized with, and over whose samples."""
