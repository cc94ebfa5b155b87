"""From known hosts to a running launcher: the files that the ranks read, and the command."""
