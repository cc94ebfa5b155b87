"""The places of runs: each place uses the same command line, on this machine or on a real cluster."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.e2e import processes
from tests.e2e.processes import Process
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
Said = subprocess.CompletedProcess[str]

# Some 5 s on two cores: long enough to be hit in the middle, with a checkpoint every few hundred milliseconds.
IMAGES, BATCH, EPOCHS = 1437, 32, 5
LAST_STEP = math.ceil(EPOCHS * IMAGES / BATCH)
HELD_AFTER = math.ceil((EPOCHS - 1) * IMAGES / BATCH)  # the last step before the hold of submit_held()
LONG = ("--set", "train.epochs=10000")  # for runs that end only when they are struck, however fast the machine
TWO_RANKS = ("--set", "grid=2x1", "--set", "ranks_per_node=2")  # of a run on this machine, which has four
SHORTER = ("--set", "train.epochs=12")  # of the example: enough to reach 98 %

SPEC = f"""name: e2e
site: site.yaml
{{layout}}
time: 10m
train:
  epochs: {EPOCHS}
  batch: {BATCH}
  optimizer: {{{{lr: 0.1}}}}
  checkpoint_every_steps: 25
  log_every_steps: 1
"""

# For tests without a training: a shell script on every rank, without the start of PyTorch.
SCRIPT = "name: e2e\nsite: site.yaml\n{layout}\ntime: 10m\ncode: none\ncommand: [sh, -c, {script}]\n"
WAITS = "until test -e released; do sleep 0.2; done"  # Place.release() ends it


class Place(ABC):
    """A site with its own folder for specs, and the means to do harm to a run there.

    `digits` are the words for the example's layout on it; `cluster` is submitit's name for the scheduler.
    `excludes` says that a job can exclude hosts; the place then has two more hosts than a run uses.
    """

    folder: Path
    layout: str
    digits: list[str]
    cluster: str
    excludes = False

    @abstractmethod
    def run(self, argv: list[str], timeout_s: float = 600) -> Said:
        """Run a program as the user of this place, in the folder of specs; 'python' is the one with torusrun."""

    @abstractmethod
    def start(self, argv: list[str]) -> subprocess.Popen[str]:
        """Begin a program in the same way."""

    @abstractmethod
    def kill(self, host: str, pid: int) -> None:
        """SIGKILL a process on a host of this place."""

    def signal(self, host: str, pid: int, number: int) -> None:
        """Send a signal to a process on a host of this place."""
        raise NotImplementedError

    def processes(self, run: Path) -> list[Process]:
        """The living processes of a run, on all hosts."""
        raise NotImplementedError

    def end_by_hand(self, job: str) -> list[str]:
        """The command by which a user ends a job without torusrun."""
        return ["qdel", job]

    def queued(self) -> list[str]:
        """The ids of the jobs that the scheduler still has."""
        return []

    # A place with hosts that can lose their power or their network sets these.
    power_off: Callable[[str], None] | None = None
    power_on: Callable[[str], None] | None = None
    unplug: Callable[[str], None] | None = None
    plug: Callable[[str], None] | None = None

    def down(self) -> AbstractContextManager[None] | None:
        """Within it the scheduler is down; None if the place has no scheduler."""
        return None

    def frozen(self) -> AbstractContextManager[None] | None:
        """Within it the scheduler does not answer, and its commands hang; None if they cannot hang."""
        return None

    def torusrun(self, *words: str, timeout_s: float = 600) -> Said:
        """`torusrun WORDS` as the user of this place, from the folder of specs."""
        return self.run(["python", "-m", "torusrun", *words], timeout_s)

    def succeeds(self, *words: str, timeout_s: float = 600) -> Said:
        """As `torusrun`, for words that must succeed."""
        said = self.torusrun(*words, timeout_s=timeout_s)
        assert said.returncode == 0, said.stdout + said.stderr
        return said

    def submit(self, *words: str) -> Path:
        """Submit the place's spec; returns the run's folder."""
        self.write_spec()
        return self._submit("run.yaml", *words)

    def submit_held(self, *words: str, attempts: int = 1) -> Path:
        """Submit the place's spec; each of the first `attempts` waits in its last epoch until it is released."""
        self.put_hold("held")
        data = {"name": "hold:digits", "options": {"epoch": EPOCHS - 1, "attempts": attempts}}
        return self.submit("--set", "code=held", "--set", f"train.data={json.dumps(data)}", *words)

    def put_hold(self, folder: str) -> None:
        """Put hold.py into a folder of code."""
        assert self.run(["mkdir", "-p", folder]).returncode == 0
        self.put(f"{folder}/hold.py", Path(__file__).with_name("hold.py").read_text())

    def submit_script(self, script: str, *words: str) -> Path:
        """Submit a run of a shell script on every rank; returns the run's folder."""
        self.write_script(script)
        return self._submit("script.yaml", *words)

    def _submit(self, *words: str) -> Path:
        said = self.succeeds("submit", *words)
        return Path(self.view(said.stdout.split()[0])["folder"])

    def release(self, run: Path, attempt: int = 1) -> None:
        """End the ranks of a run of WAITS, or the hold of a run of submit_held()."""
        assert self.run(["touch", f"{run}/attempts/{attempt}/released"]).returncode == 0

    def write_spec(self) -> None:
        self.put("run.yaml", SPEC.format(layout=self.layout))

    def write_script(self, script: str) -> None:
        self.put("script.yaml", SCRIPT.format(layout=self.layout, script=json.dumps(script)))

    def put(self, name: str, text: str) -> None:
        """Write a file into the folder of specs, as the user."""
        said = self.run(["sh", "-c", f"printf %s {shlex.quote(text)} > {shlex.quote(name)}"])
        assert said.returncode == 0, said.stderr

    def site(self, name: str, **changes: str) -> str:
        """The place's site with other lines, in its own file."""
        lines = [line for line in self.site_text().splitlines() if line.split(":")[0] not in changes]
        changed = [*lines, *(f"{key}: {value}" for key, value in changes.items())]
        self.put(name, "\n".join(changed) + "\n")
        return name

    def site_text(self) -> str:
        return (self.folder / "site.yaml").read_text()

    def stop_before_s(self) -> float:
        """The time before its limit at which a run is requested to stop."""
        (line,) = [line for line in self.site_text().splitlines() if line.startswith("stop_before:")]
        return float(line.split()[1].removesuffix("s"))

    def view(self, run: Path | str) -> dict[str, Any]:
        said = self.succeeds("status", run.name if isinstance(run, Path) else run, "--json")
        return json.loads(said.stdout)["runs"][0]

    def watch(self, run: Path) -> Said:
        return self.torusrun("watch", run.name)


class Local(Place):
    """This machine, four ranks."""

    layout = "grid: 2x2"
    digits = [*SHORTER]
    cluster = "local"

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder / "work", folder / "runs"  # a home folder and the folder of runs are no code
        self.folder.mkdir()
        self.env = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT / "src")}
        for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            self.env.pop(variable, None)
        site = "scheduler: local\nlauncher: spawn\nnode: {ranks: 4, interface: lo}\nstop_before: 10s\nkill_after: 10s\n"
        (self.folder / "site.yaml").write_text(f"{site}runs: {self.runs}\n")

    def run(self, argv: list[str], timeout_s: float = 600) -> Said:
        return subprocess.run(
            self._argv(argv), cwd=self.folder, env=self.env, text=True, capture_output=True, timeout=timeout_s
        )

    def start(self, argv: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(self._argv(argv), cwd=self.folder, env=self.env, text=True)

    def _argv(self, argv: list[str]) -> list[str]:
        return [sys.executable if word == "python" else word for word in argv]

    def kill(self, host: str, pid: int) -> None:
        self.signal(host, pid, signal.SIGKILL)

    def signal(self, host: str, pid: int, number: int) -> None:
        os.kill(pid, number)

    def processes(self, run: Path) -> list[Process]:
        return processes.of_run(run, {processes.namespace(): socket.gethostname()})

    def end_by_hand(self, job: str) -> list[str]:
        return ["kill", "-TERM", "--", f"-{job.partition('.')[0]}"]


def metrics(run: Path, event: str) -> list[dict[str, Any]]:
    """The rows of one event that rank 0 has written so far."""
    path = run / "metrics.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    rows = [json.loads(line) for line in whole.splitlines()]
    return [row for row in rows if row["event"] == event]


def seconds_to(run: Path, step: int) -> float:
    """The time from the begin of the supervisor to this step of the run."""
    (begun,) = ledger(run, "started")
    reached = next(row for row in metrics(run, "step") if row["step"] >= step)
    return float(reached["t"] - begun["t"])  # both are seconds of time.time(), on the same machine


def wait_for_step(run: Path, step: int) -> None:
    until(lambda: metrics(run, "step") and metrics(run, "step")[-1]["step"] >= step, f"step {step} of {run.name}")


def started(run: Path, rank: int = 0) -> dict[str, Any]:
    """The record of a rank at the begin of its program: host, local rank, process id."""
    path = run / f"attempts/1/ranks/{rank:04d}.start.json"
    until(path.exists, f"rank {rank} of {run.name} to start")
    return json.loads(path.read_text())


def ledger(run: Path, *kinds: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    return [row for row in rows if not kinds or row["event"] in kinds]


def weights(run: Path) -> dict[str, Any]:
    """The state in the newest checkpoint, by name."""
    import torch

    newest = max((run / "checkpoints").glob("step-*"))
    state = torch.load(newest / "state.pt", weights_only=True)
    return {**state["model"], **{f"velocity of {name}": v for name, v in state["optimizer"].items()}}


def only_on(place: Place, *clusters: str) -> None:
    """Skip a test elsewhere: these places are enough for what it tries. TORUSRUN_ALL_PLACES=1 tries all of them."""
    if place.cluster not in clusters and os.environ.get("TORUSRUN_ALL_PLACES") != "1":
        import pytest  # the campaign and the benchmarks use this file without it

        pytest.skip(f"tried on {' and '.join(clusters)}; TORUSRUN_ALL_PLACES=1 tries all places")


def assert_same_bits(run: Path, undisturbed: Path) -> None:
    import torch

    mine, other = weights(run), weights(undisturbed)
    assert mine.keys() == other.keys()
    differing = [name for name in mine if not torch.equal(mine[name], other[name])]
    assert not differing, f"after the resume these are not bit-identical to the undisturbed run: {differing[:5]}"
