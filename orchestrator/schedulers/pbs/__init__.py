"""PBS Pro and OpenPBS: commands and words, ends of jobs, the cluster and its switches."""
