"""The schedulers: pure functions for each, behind one interface. Only `client` runs a scheduler's commands."""

from __future__ import annotations

import sys
from importlib import import_module

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.schedulers.interface import Scheduler
from torusrun.training.recipe.near import did_you_mean

# The schedulers that come with torusrun, by name. A site may name another class as package.module:Class, see
# docs/guides/add-a-scheduler.md.
KNOWN = {
    "slurm": "torusrun.orchestrator.schedulers.slurm.scheduler:Slurm",
    "pbs": "torusrun.orchestrator.schedulers.pbs.scheduler:PBS",
    "gridengine": "torusrun.orchestrator.schedulers.gridengine.scheduler:GridEngine",
    "local": "torusrun.orchestrator.schedulers.local.scheduler:Local",
}


def get(name: str) -> Scheduler:
    """The scheduler that a site calls `name`. Raises UserError if there is none."""
    module, _, cls = KNOWN.get(name, name).partition(":")
    if not cls:
        raise UserError(unknown(name))
    try:
        loaded = getattr(import_module(module), cls)
    except (ImportError, AttributeError) as error:
        raise UserError(f"the scheduler {name!r} cannot be imported by {sys.executable}: {error}") from None
    if not (isinstance(loaded, type) and issubclass(loaded, Scheduler)):
        raise UserError(f"{name!r} is not a subclass of torusrun.orchestrator.schedulers.interface.Scheduler")
    declared = {attribute for attribute in ("name", "variables") if hasattr(loaded, attribute)}
    if lacking := sorted({"name", "variables", *loaded.__abstractmethods__} - declared):
        raise UserError(f"the scheduler {name!r} lacks {', '.join(lacking)}")
    return loaded()


def reference(scheduler: Scheduler) -> str:
    """The name by which `get` finds the scheduler."""
    cls = type(scheduler)
    return scheduler.name if scheduler.name in KNOWN else f"{cls.__module__}:{cls.__qualname__}"


def unknown(name: str) -> str:
    """The error message for a name that no scheduler has."""
    known = f"known: {', '.join(KNOWN)}; one of your own is written package.module:Class"
    return f"there is no scheduler {name!r}{did_you_mean(name, list(KNOWN))} ({known})"
