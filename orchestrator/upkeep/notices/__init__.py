"""Notices of the start and the ends of a run: by a command, a webhook or mail."""
