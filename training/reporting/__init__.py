"""What a training reports: metrics, one line per step, MLPerf's log, step times."""
