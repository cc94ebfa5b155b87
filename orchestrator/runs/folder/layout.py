"""The files of a run folder, with one line for each; run_folder.py has the paths.

An unfinished folder has a dot before its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Held:
    """A file or folder (or several, separated by blanks) of a run folder; `of` says which runs have it, '' for all."""

    name: str
    what: str
    of: Literal["", "image", "train", "command", "code", "hold", "shells"] = ""


RUN = (
    Held("run.yaml", "what the user wrote, to the letter"),
    Held("plan.json", "what was computed from it"),
    Held("provenance.json", "code, versions and machine"),
    Held("code.diff", "changes that git does not have, if there are any"),
    Held("image.json", "the container image: path, checksum, labels, versions found inside", "image"),
    Held("image.def", "the definition of the image, if it was built from an image file", "image"),
    Held("code/", "the code of the user as it was at submit, which the ranks use", "code"),
    Held("code.json", "where that code came from", "code"),
    Held("hold.json", "that it holds an allocation, and after how long without an attempt it ends", "hold"),
    Held("ledger.jsonl", "what happened, append-only"),
    Held("metrics.jsonl", "what was measured, over all attempts"),
    Held("checkpoints/", "step-00000150/{state.pt,manifest.json}", "train"),
    Held("checkpoints/", "what the command writes, unless it names an absolute folder", "command"),
    Held("attempts/", "a folder for each attempt"),
    Held(".current", "the number of the newest attempt that has begun"),
    Held(".lock", "held while a later attempt is submitted"),
)
ATTEMPT = (
    Held("plan.json", "what the job of this attempt reads"),
    Held("job.sh", "the job script"),
    Held("job.out job.err", "the output of the job: of the supervisor and the launcher"),
    Held("job.out.times job.err.times", "when they had grown how far (runs/folder/log_times.py)"),
    Held("placement.json", "the host, local rank and place in the grid of every rank"),
    Held("hostfile", "the hosts in the order of the ranks, for the launcher"),
    Held("launch.json", "what the wrapper of every rank starts"),
    Held("config.json", "the configuration of the training, with the token of the attempt", "train"),
    Held("rendezvous.json", "where the ranks meet"),
    Held("metrics.jsonl", "what the command may append, as JSON lines", "command"),
    Held("trace.jsonl", "a line for every step, if train.trace is set", "train"),
    Held("done.json", "that the training is done", "train"),
    Held("end.json", "how the attempt ended"),
    Held(".end.json.reserve", "room on the disk for that, until it is there"),
    Held("logs/rank-NNNN.log", "the output of each rank"),
    Held("logs/rank-NNNN.log.times", "when it had grown how far"),
    Held("ranks/NNNN.start.json", "where each rank runs"),
    Held("ranks/NNNN.end.json", "how each rank ended"),
    Held("ranks/NNNN.told.json", "a note that the rank received a request to end"),
    Held("ranks/NNNN.seen.json", "the state of a rank's process in a hang"),
    Held("ranks/NNNN.load.json", "the load of a node, and the step times of its ranks, by its first rank"),
    Held("ranks/NNNN.env", "values that the container's runtime cannot carry", "image"),
    Held("alive", "held locked by the ranks (runs/folder/claim.py)"),
    Held("keeper.json", "what the keeper of a held allocation does, and until when it holds", "hold"),
    Held("inbox/", "requests to the keeper; inbox.closed/ once it takes no more", "hold"),
    Held("shells/", "requests for shells beside ranks, if the job has to start them", "shells"),
    Held("pulse", "touched every few seconds by the supervisor while it lives"),
)


def of_run(kinds: set[str], attempt: int = 1) -> dict[str, str]:
    """Name in the run folder -> its description, for a run of these `kinds` and one of its attempts."""
    own = {held.name: held.what for held in RUN if not held.of or held.of in kinds}
    for held in ATTEMPT:
        if not held.of or held.of in kinds:
            own[" ".join(f"attempts/{attempt}/{name}" for name in held.name.split())] = held.what
    return own
