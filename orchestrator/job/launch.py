"""The command that starts every rank in the placement's order, for each launcher."""

from __future__ import annotations

import os
from collections.abc import Mapping

from orchestrator import process, schedulers
from orchestrator.placement.mapping import Placement
from orchestrator.plans.plan import Plan
from orchestrator.runs.folder import Attempt
from orchestrator.schedulers.remote import mpirun_words

# What a rank's wrapper needs before it has read anything; ssh and its likes pass no variables on.
PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "TORUSRUN_SCRATCH")


def command(plan: Plan, attempt: Attempt, placement: Placement) -> list[str]:
    """The launcher's arguments, to be started in the attempt's folder; each rank runs `orchestrator.job.rank` on it."""
    rank = process.module(plan.python, "orchestrator.job.rank", attempt.folder)
    build = {"srun": _srun, "mpirun": _mpirun, "spawn": _spawn}[plan.site.launcher]
    return [*build(plan, attempt, placement), *plan.site.launcher_args, *rank]


def environment(plan: Plan, attempt: Attempt, inherited: Mapping[str, str]) -> dict[str, str]:
    """The launcher's environment: the job's own, and for srun the file that fixes the order of hosts."""
    own = {**inherited, **plan.environment}
    return {**own, "SLURM_HOSTFILE": str(attempt.hostfile)} if plan.site.launcher == "srun" else own


def _srun(plan: Plan, attempt: Attempt, placement: Placement) -> list[str]:
    # Slurm lists hosts alphabetically; only a host file with arbitrary distribution keeps an order.
    return [
        "srun",
        f"--nodes={plan.run.nodes}",
        f"--ntasks={placement.grid.ranks}",
        "--distribution=arbitrary",
        f"--cpus-per-task={plan.site.node.cpus_per_rank}",
        "--mpi=none",
        "--kill-on-bad-exit=1",
        "--export=ALL",
    ]


def _mpirun(plan: Plan, attempt: Attempt, placement: Placement) -> list[str]:
    # A hostfile is not an order to Open MPI (it puts the launch node first); a rankfile is.
    passed = [word for name in PASSED if name in os.environ for word in ("-x", name)]
    # A site may count a whole node as one slot (ABCI's rt_F does); how many ranks it takes is the placement's to say.
    # The bare name: mpirun repeats this word, unquoted, in what the shells of the other nodes read.
    ranks = ["--oversubscribe", "-np", str(placement.grid.ranks), "--rankfile", attempt.rankfile.name]
    ordered = ["mpirun", *ranks, *passed]
    scheduler = schedulers.get(plan.site.scheduler)
    shell = plan.site.remote_shell or ("scheduler" if scheduler.lends_shell else None)
    if shell == "scheduler":
        return [*ordered, *mpirun_words(scheduler, plan.python)]
    return [*ordered, "--mca", "plm_rsh_agent", "ssh"] if shell else ordered


def _spawn(plan: Plan, attempt: Attempt, placement: Placement) -> list[str]:
    return process.module(plan.python, "orchestrator.job.spawn", str(placement.grid.ranks))
