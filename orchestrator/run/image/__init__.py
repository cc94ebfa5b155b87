"""The image of a run: found, built if the site allows it, recorded in the run folder, and verified."""
