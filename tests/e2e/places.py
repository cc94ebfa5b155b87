"""Where a run can take place: each place drives the same command line, on this machine or on a real Slurm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab.slurm import SlurmLab

ROOT = Path(__file__).resolve().parents[2]
Said = subprocess.CompletedProcess[str]

# Long enough (about 20 s on two cores) to be hit in the middle, with a checkpoint every few hundred milliseconds.
SPEC = """name: e2e
site: site.yaml
{layout}
time: 10m
train:
  epochs: 30
  batch: 32
  lr: 0.1
  checkpoint_every_steps: 25
  log_every_steps: 1
"""


class Place(ABC):
    """A site with a folder of its own for specs, and the means to do harm to a run there."""

    folder: Path
    layout: str
    digits: list[list[str]]

    @abstractmethod
    def torusrun(self, *words: str, timeout_s: float = 240) -> Said:
        """`torusrun WORDS` as the user of this place, from the folder of specs."""

    @abstractmethod
    def kill(self, host: str, pid: int) -> None:
        """SIGKILL a process on a host of this place."""

    def submit(self, *words: str) -> Path:
        """Submit the place's spec; the run's folder."""
        spec = self.folder / "run.yaml"
        spec.write_text(SPEC.format(layout=self.layout))
        said = self.torusrun("submit", str(spec), *words)
        assert said.returncode == 0, f"submit failed: {said.stderr}"
        return Path(self.view(said.stdout.split()[0])["folder"])

    def view(self, run: Path | str) -> dict[str, Any]:
        said = self.torusrun("status", run.name if isinstance(run, Path) else run, "--json")
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)["runs"][0]

    def watch(self, run: Path) -> Said:
        return self.torusrun("watch", run.name)


class Local(Place):
    """This machine, four ranks."""

    layout = "grid: 2x2"
    digits = [[]]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            self.env.pop(variable, None)
        site = "scheduler: local\nlauncher: spawn\nnode: {ranks: 4, interface: lo}\nstop_before: 10s\nkill_after: 10s\n"
        (folder / "site.yaml").write_text(f"{site}runs: {folder}/runs\n")

    def torusrun(self, *words: str, timeout_s: float = 240) -> Said:
        argv = [sys.executable, "-m", "orchestrator", *words]
        return subprocess.run(argv, cwd=self.folder, env=self.env, text=True, capture_output=True, timeout=timeout_s)

    def kill(self, host: str, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)


class Slurm(Place):
    """The lab: two nodes with two ranks each for what goes wrong, four nodes for what goes right."""

    layout = "nodes: 2\ngrid: 2x2"
    digits = [["--set", "nodes=4", "--set", f"grid={grid}"] for grid in ("2x4", "4x2")]

    def __init__(self, lab: SlurmLab) -> None:
        self.lab = lab
        self.folder = lab.home

    def torusrun(self, *words: str, timeout_s: float = 240) -> Said:
        return self.lab.run_as_user([self.lab.python, "-m", "orchestrator", *words], timeout_s=timeout_s)

    def kill(self, host: str, pid: int) -> None:
        assert self.lab.exec_on(host, ["kill", "-9", str(pid)]).returncode == 0


def until(true: Callable[[], Any], what: str, timeout_s: float = 90) -> Any:
    """Wait for something to become true; its value."""
    end_s = time.monotonic() + timeout_s
    while not (value := true()):
        assert time.monotonic() < end_s, f"waited {timeout_s:g} s in vain for {what}"
        time.sleep(0.05)
    return value


def metrics(run: Path, event: str) -> list[dict[str, Any]]:
    """The rows of one event that rank 0 has written so far."""
    path = run / "metrics.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    rows = [json.loads(line) for line in whole.splitlines()]
    return [row for row in rows if row["event"] == event]


def wait_for_step(run: Path, step: int) -> None:
    until(lambda: metrics(run, "step") and metrics(run, "step")[-1]["step"] >= step, f"step {step} of {run.name}")


def ledger(run: Path, *kinds: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    return [row for row in rows if not kinds or row["event"] in kinds]


def weights(run: Path) -> dict[str, Any]:
    """The state in the newest checkpoint, by name."""
    import torch

    newest = max((run / "checkpoints").glob("step-*"))
    state = torch.load(newest / "state.pt", weights_only=True)
    return {**state["model"], **{f"velocity of {name}": v for name, v in state["optimizer"].items()}}


def assert_same_bits(run: Path, undisturbed: Path) -> None:
    import torch

    mine, other = weights(run), weights(undisturbed)
    assert mine.keys() == other.keys()
    differing = [name for name in mine if not torch.equal(mine[name], other[name])]
    assert not differing, f"after the resume these are not bit-identical to the undisturbed run: {differing[:5]}"
