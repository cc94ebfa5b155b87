"""The job around an attempt, as the attempt reads it from a file of its folder."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.typed import read_record
from torusrun.orchestrator.run.folder.run_folder import Attempt


@dataclass(frozen=True)
class InJob:
    """What a job knows when it begins an attempt."""

    name: str  # of the job, for its scheduler
    until_s: float  # when its time is over, of time.time()
    keeps_going: bool = False  # it may begin other attempts of the run
    held: str = ""  # the folder of the run that holds the allocation; '' for none
    lost: tuple[str, ...] = ()  # its hosts that are gone, or failed the preflight
    checked: bool = False  # its hosts have passed a preflight, or need none; if it keeps going, they have the image

    @property
    def has_others(self) -> bool:
        """Whether the job has other attempts, and continues after this attempt."""
        return self.keeps_going or bool(self.held)

    @property
    def left_s(self) -> float:
        """The time that the job has left."""
        return self.until_s - time.time()

    def write(self, attempt: Attempt) -> None:
        """Write the file of the attempt that the job is about to begin. Raises SiteError."""
        write_json(attempt.in_job, asdict(self))


def read(attempt: Attempt) -> InJob | None:
    """The job of an attempt; None if no job has begun it. Raises SiteError if the file is damaged."""
    return read_record(attempt.in_job, InJob)
