"""PBS Pro and OpenPBS: its commands and states, the ends of jobs, the cluster and its switches."""
