"""Saves and loads checkpoints on all ranks: rank 0 reads the folder and writes, all load the same one."""

from __future__ import annotations

import sys
import time

import torch

from training.checkpoint.loading import load
from training.checkpoint.manifest import STATE
from training.checkpoint.store import CheckpointFolder
from training.config import Config
from training.learner import Learner
from training.meeting.agree import agreed
from training.meeting.signed_store import SignedStore
from training.reporting.reporter import Reporter


def resume(config: Config, meeting: SignedStore, learner: Learner, folder: CheckpointFolder | None) -> str | None:
    """Load the newest complete checkpoint; returns its name, None for a fresh start.

    Only rank 0 has the `folder`. It sends the name and the checksum to the others through the store `meeting`.
    """
    if folder is not None:
        newest = folder.newest
        meeting.set("resume", f"{newest.name} {newest.sha256[STATE]}" if newest else "")
    answer = meeting.get("resume").decode()
    if answer:
        name, sha256 = answer.split(" ")
        learner.restore(load(config.checkpoints, name, sha256, torch.device("cpu")))
        return name
    others = learner.start_alike()
    if others and folder is not None:
        drew = f"rank {', '.join(map(str, others))} drew other weights from the seed than rank 0"
        print(f"training: {drew}; all begin with rank 0's", file=sys.stderr, flush=True)
    return None


def save(folder: CheckpointFolder | None, learner: Learner, reporter: Reporter, *, last: bool) -> bool:
    """Check that all ranks hold the same weights, then write a checkpoint on rank 0; False if it cannot be written.

    The training continues with the older ones, unless it is the `last` of the attempt: then the failure is reported to
    the user, and all ranks wait for the outcome and return the same.
    """
    reporter.saving()
    learner.check_alike()
    learner.gather()
    error = _write(folder, learner, reporter) if folder is not None else None
    if error is not None and last and folder is not None:
        reporter.lost_checkpoint(error, folder.newest)
    return agreed(error is None, learner.device) if last else error is None


def _write(folder: CheckpointFolder, learner: Learner, reporter: Reporter) -> OSError | None:
    started_s = time.perf_counter()
    try:
        name = folder.save(learner.state(), progress=learner.progress, epoch=learner.epochs)
    except OSError as error:
        reporter.failed_checkpoint(error)
        return error
    reporter.checkpoint(name, time.perf_counter() - started_s)
    return None
