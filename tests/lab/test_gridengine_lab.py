"""The Grid Engine lab itself: it must behave like a cluster, or the tests that use it prove nothing."""

from __future__ import annotations

import time

from .cluster.processes import wait_until
from .gridengine import GridEngineLab


def job(lab: GridEngineLab, script: str, *options: str, timeout_s: float = 40) -> str:
    """The output of a job, once it is over."""
    name = f"out-{time.monotonic_ns()}"
    argv = ["qsub", "-terse", "-cwd", "-j", "y", "-o", name, "-V", *options]
    (lab.home / "job.sh").write_text(f"#!/bin/bash\n{script}\necho over\n")
    lab.run_as_user([*argv, "job.sh"], check=True)
    out = lab.home / name
    wait_until("the end of a job", lambda: out.exists() and "over\n" in out.read_text(), timeout_s, lab.server.log)
    return out.read_text().removesuffix("over\n")


def test_tight_integration_starts_ranks_where_a_rank_file_says(gridengine_lab: GridEngineLab) -> None:
    hosts = "cut -d' ' -f1 $PE_HOSTFILE | tac"
    ranks = f'i=0; for h in $({hosts}); do for _ in 1 2; do echo "rank $((i++))=$h slot=0-1"; done; done > ranks'
    # Open MPI warns on stderr if a remote shell has begun before its parent put it into a process group (setpgid).
    show = "mpirun -np 8 --rankfile ranks sh -c 'echo $OMPI_COMM_WORLD_RANK $(hostname)' 2> errors"
    show = f"{{ {show} || cat errors; }} | sort -n"
    said = job(gridengine_lab, f"{ranks}\n{hosts}\n{show}", "-pe", "mpi", "8").split()
    backwards, placed = said[:4], said[4:]
    assert placed == [word for n in range(8) for word in (str(n), backwards[n // 2])]


def test_abcis_form_gives_whole_nodes_and_its_variables(gridengine_lab: GridEngineLab) -> None:
    show = "sort $SGE_JOB_HOSTLIST; test -w $SGE_LOCALDIR && echo scratch; qrsh -inherit node3 hostname"
    said = job(gridengine_lab, show, "-g", "gaa50000", "-l", "rt_F=4")
    assert said.split() == [*gridengine_lab.nodes, "scratch", "node3"]


def test_the_master_goes_and_comes_back(gridengine_lab: GridEngineLab) -> None:
    with gridengine_lab.down():
        assert gridengine_lab.run_as_user(["qstat"]).returncode == 1
    assert gridengine_lab.run_as_user(["qstat"]).returncode == 0


def test_a_node_loses_its_power_and_comes_back(gridengine_lab: GridEngineLab) -> None:
    gridengine_lab.kill_node("node2")
    try:
        wait_until("node2 to be missed", lambda: not gridengine_lab._serves("node2"), 60)
    finally:
        gridengine_lab.start_node("node2")
    assert job(gridengine_lab, "hostname", "-l", "hostname=node2").strip() == "node2"
