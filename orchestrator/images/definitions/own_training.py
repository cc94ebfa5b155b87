"""torusrun's own training package: its place on this machine and in images."""

from __future__ import annotations

from pathlib import Path

from orchestrator.base.errors import UserError

TRAINING = "/opt/torusrun"  # the folder in images that holds the package `training`


def own_training() -> Path:
    """The training package that is copied into images or bound."""
    package = Path(__file__).resolve().parents[3] / "training"
    if (package / "__main__.py").is_file():
        return package
    raise UserError(f"{package}: the training package is not here; install torusrun whole")
