"""Attempts: make their folders from plans, submit, resume and cancel them.

run/state/ finds the state of a run before an action.
"""
