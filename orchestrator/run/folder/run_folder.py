"""The files of a run folder: the path of each, and one line about it.

An unfinished folder has a dot before its name: `.RUN` beside the runs, `.2` beside the attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from torusrun.orchestrator.base.private import ATTEMPTS


@dataclass(frozen=True)
class Held:
    """A file or folder (or several, separated by blanks) of a run folder; `of` says which runs have it, '' for all.

    Without a line about it (`what`), it is not listed.
    """

    name: str
    what: str = ""
    of: Literal[
        "",
        "image",
        "train",
        "command",
        "code",
        "hold",
        "shells",
        "keep_going",
        "preflight",
        "secrets",
        "roles",
        "stage",
    ] = ""


class HasFolder(Protocol):
    @property
    def folder(self) -> Path: ...


class At(Held):
    """A file or folder with an attribute for its path."""

    def __get__(self, owner: HasFolder, kind: type) -> Path:
        return owner.folder / self.name


class OfRank(Held):
    """A file for each rank, or for some; NNNN in its name is the rank."""

    def __get__(self, owner: Attempt, kind: type) -> Callable[[int], Path]:
        return lambda rank: owner.folder / self.name.replace("NNNN", f"{rank:04d}")


class OfRole(Held):
    """A file for each role; NAME in its name is the role."""

    def __get__(self, owner: HasFolder, kind: type) -> Callable[[str], Path]:
        return lambda role: owner.folder / self.name.replace("NAME", role)


@dataclass(frozen=True)
class Attempt:
    """The folder of an attempt."""

    folder: Path

    plan = At("plan.json", "what the job of this attempt reads")
    script = At("job.sh", "the script of the job that was submitted with this attempt")
    in_job = At("in_job.json", "the job that began the attempt: its name, its time, the hosts that it has lost")
    jobs_output = Held("jobs.out jobs.err", "the output of these jobs", "keep_going")
    jobs_stdout, jobs_stderr = At("jobs.out"), At("jobs.err")
    jobs_pulse = At("jobs.pulse", "touched every few seconds by the first host of such a job", "keep_going")
    output = Held("job.out job.err", "the output of the job: of the supervisor and the launcher")
    stdout, stderr = At("job.out"), At("job.err")
    times = Held("job.out.times job.err.times", "the times at which they had each size (run/folder/log_times.py)")
    of_preflight = Held(
        "preflight.json preflight.hosts preflight.log",
        "the results of the checks of nodes and links before the ranks start; the hosts; the output",
        "preflight",
    )
    preflight, preflight_hosts = At("preflight.json"), At("preflight.hosts")
    preflight_order, preflight_output = At("preflight.order.json"), At("preflight.log")
    placement = At("placement.json", "the host, local rank and place in the grid of every rank")
    hostfile = At("hostfile", "the hosts in the order of the ranks, for the launcher")
    launch = At("launch.json", "what the wrapper of every rank starts")
    config = At("config.json", "the configuration of the training, with the token of the attempt", "train")
    rendezvous = At("rendezvous.json", "where the ranks meet")
    metrics = At("metrics.jsonl", "what the command may append, as JSON lines", "command")
    trace = At("trace.jsonl", "a line for every step, if train.trace is set", "train")
    done = At("done.json", "a note that the training is done", "train")
    end = At("end.json", "how the attempt ended")
    reserve = Held(".end.json.reserve", "disk space reserved for end.json, until it is written")
    roles = At("roles")
    role_place = OfRole("roles/NAME.json", "the address and port of each role", "roles")
    role_meeting = OfRole("roles/NAME.meeting.json", "where the ranks of a service meet", "roles")
    role_state = OfRole("roles/NAME.state.json", "whether a service is ready", "roles")
    role_metrics = OfRole("roles/NAME.metrics.jsonl", "what a service may append, as JSON lines", "roles")
    role_judgement = OfRole(
        "roles/NAME.judgement.json", "the checkpoint that a role judges, for its other ranks", "roles"
    )
    role_beat = OfRole("roles/NAME.heartbeat")
    roles_over = At("roles/over.json", "the services that have to stop, once the main role has ended", "roles")
    logs, ranks = At("logs"), At("ranks")
    rank_log = OfRank("logs/rank-NNNN.log", "the output of each rank")
    rank_log_times = Held("logs/rank-NNNN.log.times", "the times at which it had grown to each size")
    rank_start = OfRank("ranks/NNNN.start.json", "where each rank runs")
    rank_end = OfRank("ranks/NNNN.end.json", "how each rank ended")
    rank_told = OfRank("ranks/NNNN.told.json", "a note that the rank received a request to end")
    rank_seen = OfRank("ranks/NNNN.seen.json", "the state of a rank's process in a hang")
    node_load = OfRank("ranks/NNNN.load.json", "the load of a node, and the step times of its ranks, by its first rank")
    beat = At("ranks/beat.json", "what the training does now, by the wrapper of rank 0", "train")
    heartbeat = At("ranks/heartbeat", "what the command may touch or write while it makes progress", "command")
    slow = At("ranks/slow.json", "the ranks that compute longer than the others, by the supervisor", "train")
    probe = At("ranks/probe", "written by the supervisor when there is no progress, to test whether the disk responds")
    stage_place = OfRank("ranks/NNNN.stage.json", "where a host offers what it has staged to the next one", "stage")
    staged = At("ranks/staged.json", "how far the staging is, and how long it took on each host", "stage")
    rank_variables = OfRank("ranks/NNNN.env", "values that the container's runtime cannot carry", "image")
    alive = At("alive", "held locked by the ranks (run/folder/claim.py)")
    keeper = At("keeper.json", "what the keeper of a held allocation does, and when the allocation ends", "hold")
    inbox = At("inbox/", "requests to the keeper; renamed to inbox.closed/ when it accepts no more", "hold")
    closed_inbox = At("inbox.closed/")
    shells = At("shells/", "requests for shells on the ranks' nodes, if the job has to start them", "shells")
    pulse = At("pulse", "touched every few seconds by the supervisor while it lives")

    @property
    def number(self) -> int:
        return int(self.folder.name)

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.folder.parents[1])

    @property
    def unfinished(self) -> Attempt:
        """The folder of the attempt while it is unfinished."""
        return Attempt(self.folder.with_name(f".{self.folder.name}"))


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run."""

    folder: Path

    spec = At("run.yaml", "what the user wrote, unchanged")
    plan = At("plan.json", "what was computed from it")
    provenance = At("provenance.json", "code, versions and machine, how it was submitted, and what was predicted then")
    code_diff = At("code.diff", "changes that git does not have, if there are any")
    secrets = At(".secrets.env", "the values of secret variables", "secrets")
    image = At("image.json", "the container image: path, checksum, labels, versions found inside", "image")
    images = At("images.json", "the images of services that have others, by their names", "roles")
    definition = At("image.def", "the definition of the image, if it was built from an image file", "image")
    code = At("code/", "the code of the user as it was at submit, which the ranks use", "code")
    code_record = At("code.json", "the origin of that code", "code")
    hold = At("hold.json", "a note that it holds an allocation, and how long it waits without an attempt", "hold")
    ledger = At("ledger.jsonl", "what happened, append-only")
    metrics = At("metrics.jsonl", "what was measured, over all attempts")
    checkpoints = At("checkpoints/", "step-00000150/{state.pt,manifest.json}", "train")
    of_command = Held("checkpoints/", "what the command writes, unless it names an absolute folder", "command")
    judged = OfRole("judged.NAME.json", "the checkpoints that a role has judged, over all attempts", "roles")
    attempts = At(f"{ATTEMPTS}/", "a folder for each attempt")
    current = At(".current", "the number of the newest attempt that has begun")
    notices_lock = At(".notices.lock")
    lock = At(".lock", "held while a later attempt is submitted")

    @property
    def run_id(self) -> str:
        return self.folder.name

    @property
    def sweep(self) -> Path | None:
        """The folder of the sweep that the run is a member of: SWEEP for SWEEP/SWEEP.3. None for any other run."""
        sweep, _, number = self.run_id.rpartition(".")
        return self.folder.parent if sweep == self.folder.parent.name and number.isdigit() else None

    @property
    def unfinished(self) -> Path:
        """The path of the folder while it is unfinished. The members of a sweep are finished together."""
        if self.sweep:
            return self.sweep.with_name(f".{self.sweep.name}") / self.run_id
        return self.removed

    @property
    def removed(self) -> Path:
        """The path of the folder while it is removed."""
        return self.folder.with_name(f".{self.folder.name}")

    def attempt(self, number: int) -> Attempt:
        return Attempt(self.attempts / str(number))


def listed(kind: type[Attempt | RunFolder]) -> list[Held]:
    """What a folder of this kind holds, in order."""
    return [held for held in vars(kind).values() if isinstance(held, Held) and held.what]


def files(kinds: set[str]) -> dict[str, str]:
    """Name in the run folder -> its line, for a run of these `kinds` and its first attempt."""
    lines = {held.name: held.what for held in listed(RunFolder) if not held.of or held.of in kinds}
    for held in listed(Attempt):
        if not held.of or held.of in kinds:
            lines[" ".join(f"attempts/1/{name}" for name in held.name.split())] = held.what
    return lines
