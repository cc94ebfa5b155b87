"""Sites: made from what a login node tells (`init`), examined (`doctor`), and listed."""
