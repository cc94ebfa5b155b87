"""Configs for tiny runs, and processes of `python -m torusrun.training` that cannot outlive their test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from forked_rank import ForkedRank
from states import differing

from tests.waiting import until
from torusrun.training.config import SCHEMA
from torusrun.training.recipe.train import OptimizerKeys, ScheduleKeys, Train

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600.0  # on a busy machine
# The digits on the CPU; tests replace some of it.
TRAIN = Train(device="cpu", optimizer=OptimizerKeys(lr=0.2), schedule=ScheduleKeys(warmup_epochs=2.0))
TINY = {"epochs": 2, "schedule": ScheduleKeys(), "checkpoint_every_steps": 7, "log_every_steps": 1}
TINY_STEPS = 45
TOKEN = "0123456789abcdef" * 4


def config(folder: Path, grid: tuple[int, int] = (1, 1), attempt: int = 1, **train: Any) -> dict[str, Any]:
    return {
        "schema": SCHEMA, "run": "test", "attempt": attempt, "grid": list(grid), "by_size": [], "interface": "lo",
        "rendezvous": str(folder / f"attempts/{attempt}/rendezvous.json"), "rendezvous_timeout_s": 300.0,
        "checkpoints": str(folder / "checkpoints"), "memory": str(folder / "memory"), "memory_until_s": 4e9,
        "metrics": str(folder / "metrics.jsonl"),
        "trace": str(folder / f"attempts/{attempt}/trace.jsonl"),
        "token": TOKEN, "done": str(folder / f"attempts/{attempt}/done.json"),
        "mean_time_to_failure_s": 1e6,
        "train": asdict(replace(TRAIN, **train)),
    }  # fmt: skip


class Launch:
    """The ranks of one attempt."""

    def __init__(
        self,
        document: dict[str, Any],
        path: Path,
        prefix: list[str],
        module: str,
        late: Path | None,
        memories: list[Path] | None = None,
    ) -> None:
        self.metrics, self._folder = Path(document["metrics"]), path.parent
        self.attempt = document["attempt"]
        path.write_text(json.dumps(document))
        x_ranks, y_ranks = document["grid"]
        world = x_ranks * y_ranks
        self.logs = [path.with_suffix(f".{rank}.log") for rank in range(world)]
        paths = [path] * world
        for rank, memory in enumerate(memories or []):
            paths[rank] = path.with_suffix(f".{rank}.json")
            paths[rank].write_text(json.dumps({**document, "memory": str(memory)}))
        self.ranks = [
            start(rank, world, paths[rank], log, prefix, module, late if rank else None)
            for rank, log in enumerate(self.logs)
        ]

    def codes(self) -> list[int]:
        """Wait for all ranks."""
        deadline = time.monotonic() + LIMIT_S
        return [rank.wait(max(deadline - time.monotonic(), 0.1)) for rank in self.ranks]

    def wait_for_step(self, step: int) -> None:
        until(lambda: any(seen["step"] >= step for seen in self.events("step")), f"step {step}", LIMIT_S)

    def wait_until_held(self, step: int) -> None:
        """Wait until rank 0 waits after this step: it was launched with `hold`."""
        until(self._folder.joinpath(f"held-{step}").exists, f"rank 0 to wait after step {step}", LIMIT_S)

    def release(self, step: int) -> None:
        self._folder.joinpath(f"hold-{step}").unlink()

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """This attempt's metrics, of one kind or all."""
        seen = [line for line in read_lines(self.metrics) if line["attempt"] == self.attempt]
        return [line for line in seen if kind in (None, line["event"])]

    def end(self) -> None:
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()

    @property
    def stderr_text(self) -> str:
        """What all ranks said."""
        return "".join(path.read_text() for path in self.logs)


def start(
    rank: int, world: int, path: Path, log: Path, prefix: list[str], module: str, when: Path | None
) -> ForkedRank | Started:
    """A rank; with a prefix, in a Python of its own that the words of the prefix start."""
    environment = {
        **os.environ, "PYTHONPATH": f"{ROOT}/src:{path.parent}",
        "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
    }  # fmt: skip
    if not prefix:
        return ForkedRank(module, path, log, environment, when)
    command = [*prefix, sys.executable, "-m", module, str(path)]
    with log.open("wb") as stderr:
        return Started(command, env=environment, cwd=ROOT, stderr=stderr, start_new_session=True)


class Started(subprocess.Popen[bytes]):
    """The leader of a session."""

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)


@contextmanager
def launched(
    document: dict[str, Any],
    *prefix: str,
    module: str = "torusrun.training",
    late: Path | None = None,
    memories: list[Path] | None = None,
    hold: Sequence[int] = (),
) -> Iterator[Launch]:
    """Start the ranks of a config, the first one at once and the others when `late` is there.

    With `memories`, each rank keeps copies of the state in the folder of its node. After the steps `hold`, rank 0 waits
    until it is released. Whatever happens, none is left.
    """
    path = Path(document["metrics"]).with_name(f"config-{document['attempt']}.json")
    for step in hold:
        path.with_name(f"hold-{step}").touch()
    launch = Launch(document, path, list(prefix), "held" if hold else module, late, memories)
    try:
        yield launch
    finally:
        launch.end()


def finish(document: dict[str, Any], module: str = "torusrun.training", memories: list[Path] | None = None) -> Launch:
    """Run to the end; every rank must exit 0."""
    with launched(document, module=module, memories=memories) as launch:
        codes = launch.codes()
        assert set(codes) == {0}, f"the run should have finished; exit codes {codes}: {launch.stderr_text}"
    return launch


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines only: the last one may be in the making."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1] if line]


def assert_same_state(folder: Path, other: Path, step: int, why: str) -> None:
    """The checkpoints of `step` in two run folders hold the same bits."""
    paths = (each / f"checkpoints/step-{step:08d}/state.pt" for each in (folder, other))
    found = differing(*(torch.load(path, weights_only=True) for path in paths))
    assert not found, f"{why}: not bit-identical to the undisturbed run in {found[:5]}"
