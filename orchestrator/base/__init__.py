"""Errors, states, processes, private files and the terminal, which all other packages use."""
