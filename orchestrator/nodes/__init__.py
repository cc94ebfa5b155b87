"""The nodes of an attempt: their checks, and those of their links, before the ranks start."""
