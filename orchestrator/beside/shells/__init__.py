"""Shells on the ranks' hosts that the job itself starts (`Reach.from_inside`), as by PBS's pbs_tmrsh and qrsh -inherit.

The user's side (opening.py) listens, and writes a request into the attempt's folder (shell_requests.py). The job's
first host starts a program on the rank's host. That program connects back (program.py), as `qsub -I` does.
"""
