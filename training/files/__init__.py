"""Safe reading and writing of files, file locks, and a user's own folder on a node. None of it needs torch."""
