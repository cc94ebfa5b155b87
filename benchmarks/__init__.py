"""Each file prints one table of ratios, all from the same run."""
