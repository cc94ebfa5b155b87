"""What a user opens beside the ranks of a running attempt: a terminal, a command, the way to a port."""
