"""Each file prints one table of ratios, all measured in the same run."""
