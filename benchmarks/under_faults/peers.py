"""The same training and the same faults with programs of others, each in its own virtual environment.

    python3.11 -m venv /tmp/torchft
    /tmp/torchft/bin/pip install torch==2.13.0+cpu torchft-nightly==2026.10.26 numpy scikit-learn pyyaml
    python3.11 -m venv /tmp/nvrx
    /tmp/nvrx/bin/pip install torch==2.13.0+cpu nvidia-resiliency-ext==0.4.1 numpy scikit-learn pyyaml

    python -m benchmarks.faults ettr --peers torchft=/tmp/torchft/bin/python,nvrx=/tmp/nvrx/bin/python

torchft has a lighthouse with short times (below; its own are 5 s without a heartbeat and 60 s to join), and a replica
per rank, which is started again at once when it dies. NVRx has its launcher, which starts all ranks again in the same
job; rank 0 saves a checkpoint as often as the training of torusrun does.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.under_faults.figures import Arrival, undisturbed_step_s
from benchmarks.under_faults.programs.steps import BATCH, RANKS, SHARE, read

ROOT = Path(__file__).resolve().parents[2]
FIRST_STEP_S = 120.0
PAUSE_S = 3.0  # after a fault: the longest pause that begins in this time is its own
LOOK_S = 0.05
LIGHTHOUSE = ("--min_replicas", "1", "--quorum_tick_ms", "100", "--join_timeout_ms", "1000",
              "--heartbeat_timeout_ms", "1000")  # fmt: skip
LAUNCHER = ("--nnodes", "1", "--nproc-per-node", str(RANKS), "--max-restarts", "100000", "--monitor-interval", "0.1",
            "--rdzv-backend", "c10d", "--ignore-missing-fault-tol-cfg")  # fmt: skip


@dataclass(frozen=True)
class Peer:
    """A program of others: its name and its Python."""

    name: str
    python: Path

    @classmethod
    def parse(cls, text: str) -> Peer:
        """The peer in NAME=PYTHON."""
        name, _, python = text.partition("=")
        if name not in ("torchft", "nvrx") or not Path(python).exists():
            raise argparse.ArgumentTypeError(f"{text!r} is not torchft=PYTHON or nvrx=PYTHON with an existing Python")
        return cls(name, Path(python))

    def about(self) -> str:
        """Its version, and how it is set."""
        package = {"torchft": "torchft-nightly", "nvrx": "nvidia-resiliency-ext"}[self.name]
        code = f"import importlib.metadata as m; print(*map(m.version, ('{package}', 'torch')))"
        versions = subprocess.check_output([str(self.python), "-c", code], text=True, timeout=60).split()
        words = [LIGHTHOUSE, LAUNCHER][self.name == "nvrx"]
        return f"{self.name}: {package} {versions[0]}, torch {versions[1]}, gloo, `{' '.join(words)}`."

    def commands(self, folder: Path, port: int, every: int) -> list[list[str]]:
        """What runs for a training: each is started again when it ends."""
        if self.name == "torchft":
            module = [str(self.python), "-m", "benchmarks.under_faults.programs.torchft_digits"]
            return [[*module, str(rank), str(folder)] for rank in range(RANKS)]
        launcher = [str(self.python.with_name("ft_launcher")), *LAUNCHER, "--rdzv-endpoint", f"localhost:{port}"]
        return [[*launcher, "-m", "benchmarks.under_faults.programs.nvrx_digits", str(folder), str(every)]]

    def beside(self, port: int) -> list[list[str]]:
        """What runs beside the training."""
        lighthouse = [str(self.python.with_name("torchft_lighthouse")), *LIGHTHOUSE, "--bind", f"127.0.0.1:{port}"]
        return [lighthouse] if self.name == "torchft" else []


@dataclass(frozen=True)
class Told:
    """A training over `duration_s` from the first step of all ranks on.

    `samples` count, those of `again` were computed twice, and those `lost` were never seen: their rank was away.
    """

    duration_s: float
    samples: int
    lost: int
    again: int
    faults: int
    next_step_s: tuple[float, ...]
    step_s: float

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.duration_s


def training(peer: Peer, faults: Sequence[Arrival], duration_s: float, every: int) -> Told:
    """Train with a peer for `duration_s` while these faults kill ranks; a checkpoint `every` so many steps."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        port = _free_port()
        beside = [_start(command, folder, port) for command in peer.beside(port)]
        commands = peer.commands(folder, port, every)
        work = [_start(command, folder, port) for command in commands]
        stack.callback(_end_all, folder, [*work, *beside])
        begun_s = _first_step_s(folder)
        pending, struck_s, struck = list(faults), list[float](), set[int]()
        while (now_s := time.time()) < begun_s + duration_s:
            for n, process in enumerate(work):
                if process.poll() is not None:
                    work[n] = _start(commands[n], folder, port)
            if pending and now_s >= begun_s + pending[0].at_s and (pid := _pid(folder, pending[0].rank)) not in struck:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    struck_s.append(now_s)
                    pending.pop(0)
                struck.add(pid)
            time.sleep(LOOK_S)
        return told(list(read(folder)), begun_s, duration_s, struck_s, every)


def told(
    steps: Sequence[Mapping[str, float]], begun_s: float, duration_s: float, struck_s: Sequence[float], every: int
) -> Told:
    """What the steps of all ranks say. A step that is computed again counts by its newest row."""
    end_s = begun_s + duration_s
    rows = sorted((row for row in steps if begun_s < row["t"] <= end_s), key=lambda row: row["t"])
    ranks: dict[float, float] = {}
    newest, again = 0.0, 0.0
    for row in rows:
        if row["step"] < newest - 1:  # the ranks are at the same step, or at the next
            again += newest - row["step"] + 1
            ranks = {step: n for step, n in ranks.items() if step < row["step"]}
        newest = row["step"] if row["step"] < newest - 1 else max(newest, row["step"])
        ranks[row["step"]] = max(row["ranks"], ranks.get(row["step"], 0.0))
    times_s = [begun_s, *(row["t"] for row in rows), end_s]
    waits = (_next_s(times_s, at_s) for at_s in struck_s)
    return Told(
        duration_s, round(sum(ranks.values())) * SHARE, round(sum(RANKS - n for n in ranks.values())) * SHARE,
        round(again) * BATCH, len(struck_s), tuple(wait for wait in waits if wait is not None),
        undisturbed_step_s([*_firsts(rows)], every),
    )  # fmt: skip


def _firsts(rows: Sequence[Mapping[str, float]]) -> Iterator[tuple[float, float]]:
    """When the first rank had taken each step that all ranks took."""
    newest = 0.0
    for row in rows:
        if row["step"] > newest:
            newest = row["step"]
            if row["ranks"] == RANKS:
                yield row["t"], newest


def _next_s(times_s: Sequence[float], struck_s: float) -> float | None:
    """The time from a fault to the end of the longest pause that it made; None if this is the end of all."""
    pauses = [(b - a, b) for a, b in pairwise(times_s) if struck_s - 1 < a < struck_s + PAUSE_S and b > struck_s]
    ends_s = max(pauses)[1] if pauses else times_s[-1]
    return None if ends_s == times_s[-1] else ends_s - struck_s


def _start(command: Sequence[str], folder: Path, port: int) -> subprocess.Popen[bytes]:
    more = {"PYTHONPATH": str(ROOT), "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}", "RUST_LOG": "error"}
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(
            command, cwd=folder, env={**os.environ, **more}, stdout=log, stderr=log, start_new_session=True
        )


def _end_all(folder: Path, started: Sequence[subprocess.Popen[bytes]]) -> None:
    """End these processes, and all that work in the folder: a launcher's ranks are in sessions of their own."""
    for process in started:
        process.kill()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                os.kill(int(entry.name), signal.SIGKILL)
    for process in started:
        process.wait(10)


def _first_step_s(folder: Path) -> float:
    """When all ranks had taken a step together."""
    until_s = time.monotonic() + FIRST_STEP_S
    while time.monotonic() < until_s:
        if whole := [row["t"] for row in read(folder) if row["ranks"] == RANKS]:
            return min(whole)
        time.sleep(LOOK_S)
    tail = (folder / "log").read_text(errors="replace")[-2000:]
    raise SystemExit(f"no step of all ranks within {FIRST_STEP_S:g} s: {tail}")


def _pid(folder: Path, rank: int) -> int:
    return int((folder / f"pid-{rank}").read_text())


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
