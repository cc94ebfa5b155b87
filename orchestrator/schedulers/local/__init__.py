"""This machine as a scheduler: jobs are sessions of processes."""
