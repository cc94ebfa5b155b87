"""One file per verb: what it asks for and what it prints. Its docstring is the end of its `--help`."""
