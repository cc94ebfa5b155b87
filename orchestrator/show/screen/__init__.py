"""Runs on a terminal: on the whole screen, in one line, or printed line by line."""
