"""Attempts: make their folders from plans, submit, resume and cancel them.

runs/state/ finds the state of a run before an action.
"""
