"""Completion of the command line in bash, zsh and fish: a script with all words, which starts no Python."""
