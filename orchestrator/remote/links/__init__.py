"""The links that carry a session to a login node: one command there, through fabric or the ssh program."""
