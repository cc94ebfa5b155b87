"""What a user opens on the hosts of a running attempt: a terminal, a command, a forwarded port."""
