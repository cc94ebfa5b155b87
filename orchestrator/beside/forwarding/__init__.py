"""Local ports that forward to a port on the host of a rank.

The user's side (listening.py) and a program on the rank's host (program.py) are the ends of one pair of pipes, which a
shell's way joins (beside/forward.py). Both carry many connections over it (carrying.py, messages.py).
"""
