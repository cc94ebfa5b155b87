"""Run and site files: read strictly; every mistake is reported with its file, line and column."""
