"""Grid Engine: its commands and states, the records of jobs, the cluster and its switches."""
