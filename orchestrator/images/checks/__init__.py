"""Whether an image fits a site and a run: what is asked of both, what is known, and the rules."""
