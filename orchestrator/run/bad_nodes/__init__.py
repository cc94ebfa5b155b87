"""The memory of bad nodes: the hosts that later requests of this user leave out, by evidence."""
