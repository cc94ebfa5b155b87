"""The interfaces for users: the verbs of the command line, the functions for Python, and the dry run."""
