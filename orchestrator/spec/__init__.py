"""What the user writes: the run and the site, read strictly, every mistake named with its file, line and column."""
