"""The reports of a training: metrics, one line per step, MLPerf's log, step times."""
