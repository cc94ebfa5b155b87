"""The user's own command as the program of an attempt."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.environment import absolute_only
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.shipped import without_sent
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.keys.run import ExitCodes
from torusrun.orchestrator.run.folder.checkpoints import content, newest
from torusrun.orchestrator.run.folder.judged import judged_so_far
from torusrun.orchestrator.run.folder.records import Meaning
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.program.progress import pattern_of
from torusrun.orchestrator.run.program.what_runs import MetricsSource, Program
from torusrun.training.checkpoint.manifest import newest_complete


def make_ready(plan: Plan, run: RunFolder, attempt: Attempt) -> None:
    """Make the folder of checkpoints, and link the command's own name for it to it.

    Raises SiteError if it cannot be made.
    """
    folder, kept = plan.run.checkpoints.folder, checkpoints(plan, run)
    try:
        private.make(kept, plan.site.umask)
        if folder and not os.path.isabs(folder):
            link = working_directory(plan, run, attempt) / folder
            if not link.is_symlink():
                private.make(link.parent, plan.site.umask)
                link.symlink_to(kept)
    except OSError as error:
        raise SiteError(f"{error.filename}: the folder of checkpoints cannot be made: {error.strerror}") from None


def program(plan: Plan, run: RunFolder, attempt: Attempt, entry: str) -> Program:
    """The command of a run, in its copy of the code.

    `entry` is the folder in which scripts find the package `torusrun`, and nothing else of ours.
    """
    directory = working_directory(plan, run, attempt)
    kept = checkpoints(plan, run)
    interface = plan.site.node.interface
    return Program(
        plan.run.command,
        environment={
            **({name: interface for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")} if interface else {}),
            "PYTHONUNBUFFERED": "1",  # Python's output is in the log at once
            **plan.environment,
            "PYTHONPATH": _python_path(plan, directory, entry),
            "TORUSRUN_CHECKPOINTS": str(kept),
            "TORUSRUN_RESUME": str(newest(kept) or ""),
            "TORUSRUN_METRICS": str(attempt.metrics),
            "TORUSRUN_HEARTBEAT": str(attempt.heartbeat),
            "TORUSRUN_STOP_SIGNAL": plan.run.stop.signal,
            "TORUSRUN_MEAN_TIME_TO_FAILURE_S": f"{plan.mean_time_to_failure_s:.0f}",
        },
        directory=str(directory),
        stop_signal=signal.Signals[plan.run.stop.signal],
        exit_codes=_meanings(plan.run.exit_codes),
        metrics=MetricsSource(
            str(attempt.metrics), pattern_of(plan.run.metrics.pattern, by_checkpoint=bool(plan.run.each))
        ),
    )


def _python_path(plan: Plan, directory: Path, entry: str) -> str:
    """The user's PYTHONPATH, with relative parts below the code, or else the job's; then `entry`.

    The job's names packages that were sent to a login node for our Python: the command may need other versions.
    """
    own = plan.environment.get("PYTHONPATH")
    if own is None:
        inherited = "" if plan.run.image else without_sent(absolute_only(os.environ.get("PYTHONPATH", "")))
        return os.pathsep.join(filter(None, (inherited, entry)))
    return os.pathsep.join([*(str(directory / part) for part in own.split(os.pathsep)), entry])


def working_directory(plan: Plan, run: RunFolder, attempt: Attempt) -> Path:
    """The working directory of the command: the run's copy of its code, or the attempt's folder without code."""
    return attempt.folder if plan.code is None else run.code


def checkpoints(plan: Plan, run: RunFolder) -> Path:
    """The folder that keeps the command's checkpoints over all attempts."""
    folder = plan.run.checkpoints.folder
    return Path(folder) if folder and os.path.isabs(folder) else run.checkpoints


def continues_from(plan: Plan, run: RunFolder) -> Path | None:
    """The newest checkpoint, from which the next attempt continues."""
    if plan.run.command:
        return newest(checkpoints(plan, run))
    with busy(f"reading the newest checkpoint of {run.run_id}, whose checksums are compared"):
        complete = newest_complete(run.checkpoints)
    return complete.path if complete else None


def newest_checkpoint(plan: Plan, run: RunFolder) -> tuple[str | None, str]:
    """(the name of the newest checkpoint, a checksum of its content if a program may overwrite it).

    The second differs, too, once a role has judged another checkpoint: that is progress.
    """
    path = continues_from(plan, run)
    files = content(path.parent) if path and plan.run.command else ""
    return path.name if path else None, files + judged_so_far(run)


def _meanings(codes: ExitCodes) -> dict[str, Meaning]:
    named = {Meaning.DONE: codes.done, Meaning.LATER: codes.later, Meaning.NEVER: codes.never}
    meanings = {str(code): meaning for meaning, numbers in named.items() for code in numbers}
    return {"0": Meaning.FAILED, **meanings}
