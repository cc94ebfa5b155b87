"""torusrun's login-node half: one YAML becomes a placed, watched and resumable multi-node training.

`orchestrator.submit("run.yaml")` submits a run and returns a `Run`; `orchestrator.plan("run.yaml")` computes the same
plan without touching anything. Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from orchestrator.base.version import __version__

TYPE_CHECKING = False  # without `typing`: nothing is imported before cli.py has seen to where modules are looked for
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.cli.api import Run as Run
    from orchestrator.cli.api import dry_run as dry_run
    from orchestrator.cli.api import open_run as open_run
    from orchestrator.cli.api import open_sweep as open_sweep
    from orchestrator.cli.api import plan as plan
    from orchestrator.cli.api import plan_sweep as plan_sweep
    from orchestrator.cli.api import submit as submit
    from orchestrator.cli.api import sweep as sweep

__all__ = ["Run", "__version__", "dry_run", "open_run", "open_sweep", "plan", "plan_sweep", "submit", "sweep"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
    from orchestrator.cli import api

    return getattr(api, name)
