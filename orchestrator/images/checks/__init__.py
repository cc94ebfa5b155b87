"""Whether an image fits a site and a run: the questions, the facts, and the rules."""
