"""Runs on a terminal: on the whole of it, in one line, or printed line by line."""
