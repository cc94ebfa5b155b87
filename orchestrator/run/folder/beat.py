"""What the training of an attempt does now, in a small file that the wrapper of rank 0 keeps for the supervisor."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.private import READABLE, open_regular
from torusrun.orchestrator.base.typed import read_record
from torusrun.training.recipe.key import Limits, Pattern
from torusrun.training.reporting.heartbeat import DOING

BYTES = 128  # of the file, whatever it says


@dataclass(frozen=True)
class Beat:
    """The training is at `step`, and takes steps, evaluates or saves (training/reporting/heartbeat.py)."""

    doing: Annotated[str, Pattern(f"one of {', '.join(DOING)}", "|".join(DOING))]
    step: Annotated[int, Limits(at_least=0)]

    def write(self, path: Path) -> None:
        """Write the record over the former one, without new space on the disk: it may be full. Errors are ignored."""
        with contextlib.suppress(OSError):
            descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT, READABLE)
            try:
                os.pwrite(descriptor, json.dumps(asdict(self)).ljust(BYTES - 1).encode() + b"\n", 0)
            finally:
                os.close(descriptor)

    @classmethod
    def read(cls, path: Path) -> Beat | None:
        """The record in `path`; None if there is none, or if it is damaged."""
        try:
            return read_record(path, cls)
        except SiteError:
            return None
