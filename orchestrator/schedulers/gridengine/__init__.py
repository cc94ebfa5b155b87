"""Grid Engine: commands and words, records of jobs, shells beside ranks, the cluster and its switches."""
