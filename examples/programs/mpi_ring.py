"""Sums around a ring of MPI processes with mpi4py, with a checkpoint from which the next start continues.

    mpirun -np 4 python mpi_ring.py --steps 400

In each step every process passes a number around the ring until it has met all the others, and adds what it receives.
Allreduce must give the same sum. mpi_ring.c computes the same values.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from mpi4py import MPI


def around(mine: int, comm: MPI.Intracomm) -> int:
    rank, size = comm.Get_rank(), comm.Get_size()
    total = passing = mine
    for _ in range(size - 1):
        passing = comm.sendrecv(passing, dest=(rank + 1) % size, source=(rank - 1) % size)
        total += passing
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step")
    parser.add_argument("--checkpoints", type=Path, default=Path("ckpt"))
    args = parser.parse_args()

    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    path = args.checkpoints / "state"
    state = (0, 1)
    if rank == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            saved_step, saved_value = path.read_text().split()
            state = int(saved_step), int(saved_value)
            print(f"rank 0 of {comm.Get_size()} resumes at step={state[0]} from {path}", flush=True)
    step, value = comm.bcast(state)

    while step < args.steps:
        mine = value * (rank + 1) % 1000003
        total = around(mine, comm)
        if comm.allreduce(mine) != total:
            print(f"rank {rank}: the ring gives {total}, not what Allreduce gives", file=sys.stderr, flush=True)
            comm.Abort(1)
        step, value = step + 1, (value * 31 + total) % 1000003
        if rank == 0 and step % 10 == 0:
            print(f"step={step} value={value}", flush=True)
        if rank == 0 and step % args.every == 0:
            path.with_suffix(".tmp").write_text(f"{step} {value}\n")
            os.replace(path.with_suffix(".tmp"), path)
        time.sleep(args.pause)
    if rank == 0:
        print(f"done step={step} value={value} processes={comm.Get_size()}", flush=True)


if __name__ == "__main__":
    main()
