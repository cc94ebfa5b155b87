"""Site files: written from the facts of a login node (`init`), checked (`doctor`), and listed."""
