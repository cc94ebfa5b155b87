"""The side of a session that runs on the login node, and the programs that it starts there."""
