"""The place of every rank: the grid, its placement on the hosts of a job, and the check of each rank's place."""
