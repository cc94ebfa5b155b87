"""The image of a run: looked up, built if the site allows it, recorded in the run folder, and verified."""
