"""Messages between the ranks of doctor's job and this login node, as files in the job's folder."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.base import private

LARGEST_BYTES = 1 << 20


@dataclass
class Talk:
    """The ranks' messages so far, and when this login node saw and answered them, by rank."""

    folder: Path
    word: str
    hello: dict[int, dict[str, Any]] = field(default_factory=dict)
    answered_s: dict[int, float] = field(default_factory=dict)
    done: dict[int, dict[str, Any]] = field(default_factory=dict)

    def listen(self, ranks: int) -> None:
        """Read new messages, and answer them at once."""
        os.listdir(self.folder)  # makes NFS refresh the folder
        for rank in range(ranks):
            if rank not in self.hello and (said := _read(self.folder / f"rank-{rank}.json")):
                self.hello[rank], self.answered_s[rank] = said, time.time()
                private.write_bytes(self.folder / f"answer-{rank}", self.word.encode())
            if rank not in self.done and (said := _read(self.folder / f"done-{rank}.json")):
                self.done[rank] = said


def _read(path: Path) -> dict[str, Any] | None:
    try:
        said = json.loads(private.read_bytes(path, LARGEST_BYTES))
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None
