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
    from orchestrator.cli.api import plan as plan
    from orchestrator.cli.api import submit as submit

__all__ = ["Run", "__version__", "dry_run", "open_run", "plan", "submit"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
    from orchestrator.cli import api

    return getattr(api, name)
