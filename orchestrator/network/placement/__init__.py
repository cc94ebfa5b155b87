"""Which rank runs where: the grid, its placement on the hosts of a job, and the check of every rank's place."""
