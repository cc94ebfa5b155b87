"""One file per verb: its arguments and its output. Its docstring is the end of its `--help`."""
