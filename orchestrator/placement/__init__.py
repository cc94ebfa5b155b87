"""Which rank goes where: the grid, its mapping onto the hosts really given, and the proof that the launcher kept it."""
