"""Slurm: its commands and states, its reasons, its cluster and its switches."""
