"""How busy the GPUs of a node are, by regular queries of nvidia-smi, which may hang for long if a GPU is faulty."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import clean_environment
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.run.folder.at_work import GpuLoad

ASKED = ("index", "utilization.gpu", "memory.used", "memory.total", "power.draw")
ANSWER_S = 20.0
REST_S = 120.0  # after a failure, before the next query
MIB = 1024**2
DRIVER = Path("/dev/nvidiactl")


class GpuWatch:
    """Queries nvidia-smi in its own thread until it is closed, so that the caller never waits."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._newest: tuple[float, tuple[GpuLoad, ...]] = (0.0, ())  # when told, and the loads
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="gpus", daemon=True)
        self._thread.start()

    def newest(self) -> tuple[GpuLoad, ...]:
        """The newest answer; () if it is too old."""
        told_s, gpus = self._newest
        return gpus if time.monotonic() < told_s + ANSWER_S + self._every_s else ()

    def close(self) -> None:
        self._over.set()

    def _ask(self) -> None:
        rest_s = 0.0
        while not self._over.wait(rest_s):
            try:
                self._newest, rest_s = (time.monotonic(), gpus(answer())), self._every_s
            except (SiteError, OSError, ValueError):
                rest_s = REST_S


def answer() -> str:
    """The output of nvidia-smi, which ends with this process. If it cannot be killed, this call waits until it ends.

    Raises SiteError if it cannot be started, OSError or ValueError if its output cannot be read.
    """
    readable, writable = os.pipe()
    with open(readable, "rb") as read:
        with open(writable, "wb") as output:
            query = process.start(
                command(os.environ), environment=clean_environment(), output=output, parent_death=signal.SIGKILL
            )
        try:
            query.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            query.kill()
        query.wait()
        return read.read().decode()


def command(environment: Mapping[str, str]) -> list[str]:
    """The command that queries the job's GPUs only."""
    return ["nvidia-smi", f"--query-gpu={','.join(ASKED)}", "--format=csv", *restriction(environment)]


def restriction(environment: Mapping[str, str]) -> list[str]:
    """The option of nvidia-smi for the job's GPUs only; none if the job does not name them."""
    given = environment.get("CUDA_VISIBLE_DEVICES", "")
    return [f"--id={given}"] if re.fullmatch(r"(\d+|GPU-[0-9a-f-]+)(,(\d+|GPU-[0-9a-f-]+))*", given) else []


def gpus(answer: str) -> tuple[GpuLoad, ...]:
    """The GPUs in a CSV table with titles and units. Raises ValueError if it is not such a table."""
    titles, *rows = [*csv.reader(answer.strip().splitlines(), skipinitialspace=True)] or [[]]
    names = [title.partition(" ")[0] for title in titles]
    if "utilization.gpu" not in names:
        raise ValueError("this is not the output of nvidia-smi --query-gpu")
    return tuple(_gpu(number, dict(zip(names, row, strict=False))) for number, row in enumerate(rows))


def _gpu(number: int, row: Mapping[str, str]) -> GpuLoad:
    index, busy, used, total, power = (_number(row.get(name, "")) for name in ASKED)
    return GpuLoad(
        number if index is None else int(index),
        None if busy is None else busy / 100,
        None if used is None else used * MIB,
        None if total is None else total * MIB,
        power,
    )


def _number(text: str) -> float | None:
    """The number before a unit; None for '[N/A]' and '[Not Supported]'."""
    match = re.match(r"\s*(\d+(\.\d+)?)( |$)", text)
    return float(match[1]) if match else None
