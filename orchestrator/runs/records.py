"""How ranks and attempts ended, as they themselves wrote it down."""

from __future__ import annotations

import signal as signals
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.runs.files import read_json, write_json
from orchestrator.states import State


@dataclass(frozen=True)
class RankEnd:
    """How one rank's process ended: an exit code, or a signal, or an `error` before it could start.

    `told` says that it was asked to end before it did: then it followed others, and is not the cause.
    """

    rank: int
    host: str
    local_rank: int
    ended_s: float
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    told: bool = False

    @property
    def good(self) -> bool:
        return self.exit_code == 0 and not self.error

    @property
    def words(self) -> str:
        """'rank 3 (node2, local rank 1) was killed by SIGKILL', or the like."""
        who = f"rank {self.rank} ({self.host}, local rank {self.local_rank})"
        if self.error:
            return f"{who} did not start: {self.error}"
        if self.signal is not None:
            return f"{who} was killed by {signal_name(self.signal)}"
        return f"{who} ended with exit code {self.exit_code}"

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> RankEnd:
        return cls(**read_json(path))


def signal_name(number: int) -> str:
    """'SIGKILL' for 9; real-time and unknown signals by number."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True)
class End:
    """How an attempt ended. `certain` is False when a signal from outside ended it: the scheduler may know why."""

    state: State
    reason: str
    certain: bool = True

    def write(self, path: Path) -> None:
        write_json(path, {"schema": 1, "state": self.state.value, "certain": self.certain, "reason": self.reason})

    @classmethod
    def read(cls, path: Path) -> End | None:
        kept: dict[str, Any] | None = read_json(path)
        return cls(State(kept["state"]), kept["reason"], kept["certain"]) if kept else None
