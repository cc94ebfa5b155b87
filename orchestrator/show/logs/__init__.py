"""The logs of attempts: their files, their lines in the order of time, and the first failure."""
