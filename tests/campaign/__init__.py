"""A campaign of faults: runs are hit at random steps, and every one must be told truly and end in the same bits.

    python -m tests.campaign --seed 1 --faults 90 --places local,slurm,gridengine

`schedule.py` draws the faults from the seed, `faults/` knows how to do each kind and what must be told of it,
`trial.py` carries one out, `table.py` prints what came of it.
"""
