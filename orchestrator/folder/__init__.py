"""The run folder: all known facts of a run. If other sources disagree, the run folder is right."""
