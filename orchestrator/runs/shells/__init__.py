"""Shells beside ranks where only a job itself can start programs on its hosts, as with PBS's pbs_tmrsh.

The user's side (opening.py) listens, and leaves a request in the attempt's folder (request.py). The job's first host
starts a program on the rank's host (starting.py). That program connects back (program.py), as `qsub -I` does.
"""
