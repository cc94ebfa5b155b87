"""The paths in a run folder; layout.py describes the files.

An unfinished folder has a dot before its name: `.RUN` beside the runs, `.2` beside the attempts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Attempt:
    """The folder of one attempt."""

    folder: Path

    @property
    def number(self) -> int:
        return int(self.folder.name)

    @property
    def unfinished(self) -> Attempt:
        """The folder of the attempt while it is unfinished."""
        return Attempt(self.folder.with_name(f".{self.folder.name}"))

    @property
    def plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def script(self) -> Path:
        return self.folder / "job.sh"

    @property
    def stdout(self) -> Path:
        return self.folder / "job.out"

    @property
    def stderr(self) -> Path:
        return self.folder / "job.err"

    @property
    def placement(self) -> Path:
        return self.folder / "placement.json"

    @property
    def config(self) -> Path:
        return self.folder / "config.json"

    @property
    def hostfile(self) -> Path:
        return self.folder / "hostfile"

    @property
    def launch(self) -> Path:
        return self.folder / "launch.json"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def trace(self) -> Path:
        return self.folder / "trace.jsonl"

    @property
    def rendezvous(self) -> Path:
        return self.folder / "rendezvous.json"

    @property
    def done(self) -> Path:
        return self.folder / "done.json"

    @property
    def end(self) -> Path:
        return self.folder / "end.json"

    @property
    def alive(self) -> Path:
        return self.folder / "alive"

    @property
    def pulse(self) -> Path:
        return self.folder / "pulse"

    @property
    def keeper(self) -> Path:
        return self.folder / "keeper.json"

    @property
    def inbox(self) -> Path:
        return self.folder / "inbox"

    @property
    def closed_inbox(self) -> Path:
        return self.folder / "inbox.closed"

    @property
    def shells(self) -> Path:
        return self.folder / "shells"

    @property
    def ranks(self) -> Path:
        return self.folder / "ranks"

    def rank_start(self, rank: int) -> Path:
        return self.ranks / f"{rank:04d}.start.json"

    def rank_end(self, rank: int) -> Path:
        return self.ranks / f"{rank:04d}.end.json"

    def rank_told(self, rank: int) -> Path:
        return self.ranks / f"{rank:04d}.told.json"

    def rank_seen(self, rank: int) -> Path:
        return self.ranks / f"{rank:04d}.seen.json"

    def node_load(self, rank: int) -> Path:
        """The load of the node on which `rank` is the first."""
        return self.ranks / f"{rank:04d}.load.json"

    def rank_variables(self, rank: int) -> Path:
        return self.ranks / f"{rank:04d}.env"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def rank_log(self, rank: int) -> Path:
        return self.logs / f"rank-{rank:04d}.log"


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    folder: Path

    @property
    def run_id(self) -> str:
        return self.folder.name

    @property
    def unfinished(self) -> Path:
        """The path of the folder while it is unfinished."""
        return self.folder.with_name(f".{self.folder.name}")

    @property
    def lock(self) -> Path:
        return self.folder / ".lock"

    @property
    def current(self) -> Path:
        return self.folder / ".current"

    @property
    def spec(self) -> Path:
        return self.folder / "run.yaml"

    @property
    def plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def provenance(self) -> Path:
        return self.folder / "provenance.json"

    @property
    def image(self) -> Path:
        return self.folder / "image.json"

    @property
    def definition(self) -> Path:
        return self.folder / "image.def"

    @property
    def hold(self) -> Path:
        return self.folder / "hold.json"

    @property
    def code_diff(self) -> Path:
        return self.folder / "code.diff"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.jsonl"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def code(self) -> Path:
        return self.folder / "code"

    @property
    def code_record(self) -> Path:
        return self.folder / "code.json"

    @property
    def attempts(self) -> Path:
        return self.folder / "attempts"

    def attempt(self, number: int) -> Attempt:
        return Attempt(self.attempts / str(number))
