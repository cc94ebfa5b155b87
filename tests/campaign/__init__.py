"""A campaign of faults at random steps of runs: each must be reported correctly, and each run must keep its bits.

    python -m tests.campaign --seed 1 --faults 90 --places local,slurm,gridengine

`schedule.py` draws the faults from the seed, `faults/` has the action and the expected report of each kind,
`trial.py` carries one out, `table.py` prints the result.
"""
