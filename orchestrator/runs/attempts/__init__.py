"""From a plan to a run folder, and from a run folder to a job: create, submit, resume and cancel attempts.

Nothing here asks how a run is: whoever resumes or cancels says it (seen.py). So a job may start its run's next attempt.
"""
