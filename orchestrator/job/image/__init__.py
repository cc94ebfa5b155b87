"""The image of the ranks on a node: its copy, its mount, and the command that starts a rank in it."""
