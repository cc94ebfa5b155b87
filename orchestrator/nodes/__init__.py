"""The nodes of a site: checks before a start, and the memory of bad ones."""
