"""Slurm: its commands and words, its reasons, its cluster and its switches."""
