"""One small file of pure functions per scheduler behind one seam; what starts processes lives once, in `client`."""

from __future__ import annotations

from importlib import import_module

from orchestrator.errors import UserError
from orchestrator.schedulers.seam import Scheduler
from orchestrator.spec.problems import did_you_mean

# A scheduler's name in a site, and its class, imported when it is asked for. docs/add-a-scheduler.md adds one.
KNOWN = {
    "slurm": "orchestrator.schedulers.slurm:Slurm",
    "pbs": "orchestrator.schedulers.pbs:PBS",
    "gridengine": "orchestrator.schedulers.gridengine:GridEngine",
    "local": "orchestrator.schedulers.local:Local",
}


def get(name: str) -> Scheduler:
    """The scheduler called `name` in a site. Raises UserError when there is none."""
    if name not in KNOWN:
        raise UserError(unknown(name))
    module, _, cls = KNOWN[name].partition(":")
    scheduler: Scheduler = getattr(import_module(module), cls)()
    return scheduler


def unknown(name: str) -> str:
    """What to say of a name that is no scheduler's."""
    return f"there is no scheduler {name!r}{did_you_mean(name, list(KNOWN))} (known: {', '.join(KNOWN)})"
