"""From a plan to a run folder, and from a run folder to a job: create, submit, resume and cancel attempts.

runs/state/ says how a run stands before something is done to it.
"""
