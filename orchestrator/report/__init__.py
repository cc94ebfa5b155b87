"""What users see of runs: logs, screens, published recipes."""
