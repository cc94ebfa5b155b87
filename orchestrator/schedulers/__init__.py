"""One small file of pure functions per scheduler behind one seam; what starts processes lives once, in `client`."""

from orchestrator.schedulers.seam import Scheduler


def get(name: str) -> Scheduler:
    """The scheduler called `name` in a site."""
    if name == "slurm":
        from orchestrator.schedulers.slurm import Slurm

        return Slurm()
    if name == "pbs":
        from orchestrator.schedulers.pbs import PBS

        return PBS()
    if name == "gridengine":
        from orchestrator.schedulers.gridengine import GridEngine

        return GridEngine()
    if name == "local":
        from orchestrator.schedulers.local import Local

        return Local()
    raise ValueError(f"no scheduler {name!r}")
