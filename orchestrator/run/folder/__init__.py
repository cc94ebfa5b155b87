"""What is kept on disk of a run, a sweep and bad nodes. If other sources disagree, the run folder is right."""
