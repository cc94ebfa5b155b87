"""The job around an attempt that has none of its own: it begins the attempt, and says its end and its lost hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.run.folder import allocation
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder

JOB, UNTIL = "TORUSRUN_JOB", "TORUSRUN_UNTIL_S"
LOST, CHECKED = "TORUSRUN_LOST_HOSTS", "TORUSRUN_CHECKED_HOSTS"


@dataclass(frozen=True)
class Around:
    """The job that begins attempts. `held` is its run if it is a held allocation, `job` its name if it keeps going.

    `left_s` is the time that it has left, `lost` are the hosts that it has lost. `checked` says that its hosts have had
    a preflight, or need none; if the job keeps going, ranks have begun in it, so that they have the image, too.
    """

    held: RunFolder | None
    job: str
    left_s: float
    lost: tuple[str, ...] = ()
    checked: bool = False


def variables(job: str, until_s: float, lost: Sequence[str], *, checked: bool) -> dict[str, str]:
    """The variables for an attempt in a job of this name that ends at `until_s` (of time.time())."""
    return {JOB: job, UNTIL: repr(until_s), LOST: ",".join(lost), CHECKED: "1" if checked else ""}


def begin(attempt: Attempt, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start an attempt by its script, as a job of its own would. Raises SiteError if that fails."""
    return process.start(
        ["/bin/bash", attempt.script, f"{attempt.folder.parents[1].name}.{attempt.number}"],
        environment=environment,
        own_group=True,
        cwd=attempt.folder,
        parent_death=signal.SIGKILL,  # for the script; its supervisor then ends its own processes
    )


def found(environment: Mapping[str, str] = os.environ) -> Around | None:
    """The job around this process; None if the attempt has a job of its own."""
    if UNTIL in environment:
        lost = tuple(filter(None, environment.get(LOST, "").split(",")))
        left_s = float(environment[UNTIL]) - time.time()
        return Around(None, environment.get(JOB, ""), left_s, lost, bool(environment.get(CHECKED)))
    folder, until_s = environment.get(allocation.VARIABLE), allocation.until_s(environment)
    if not folder or until_s is None:
        return None
    return Around(RunFolder(Path(folder).parents[1]), "", until_s - time.time(), checked=True)
