"""Our training package: where it lies here, and where it lies in images."""

from __future__ import annotations

from pathlib import Path

from orchestrator.base.errors import UserError

TRAINING = "/opt/torusrun"  # the folder of images that holds the package `training`


def own_training() -> Path:
    """The training package that goes into images, or is bound."""
    package = Path(__file__).resolve().parents[3] / "training"
    if (package / "__main__.py").is_file():
        return package
    raise UserError(f"{package}: the training package is not here; install torusrun whole")
