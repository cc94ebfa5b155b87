"""The plan of a run: computed from its spec and site, used by every verb, and read back by its job."""
