"""The image of a run: found, built where the site allows it, kept in the run folder, and verified."""
