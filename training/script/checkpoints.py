"""`torusrun.Checkpoints`: for a script of the user's own, what training/learner_saver.py is for our training."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from torusrun.training.checkpoint import manifest, writer
from torusrun.training.checkpoint.interval import Interval
from torusrun.training.checkpoint.loading import Plain, load
from torusrun.training.checkpoint.manifest import STATE, name_of
from torusrun.training.checkpoint.saver import Saver
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.checkpoint.writer import Writer, Written
from torusrun.training.config import too_few
from torusrun.training.files import lock
from torusrun.training.meeting.agree import agreed_numbers
from torusrun.training.progress import Progress
from torusrun.training.recipe.train import CheckpointKeys
from torusrun.training.reporting import events
from torusrun.training.reporting.exits import StopRequest
from torusrun.training.reporting.metrics import Metrics
from torusrun.training.reporting.output import warn
from torusrun.training.script.given import Given, HeartbeatFile

CPU = torch.device("cpu")
FRESH, FAILED = -1, -2  # in place of a number of steps
LOCK = ".lock"
LOCKED_S = 2 * writer.ALONE_S  # a writer whose training has ended holds the lock for ALONE_S at most


class Stateful(Protocol):
    """A model, an optimizer, a schedule, a scaler, ..."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers, texts, and lists, tuples and dicts of them."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Continue from what `state_dict` returned; its tensors are on the CPU."""


class Checkpoints:
    """Saves the state of a training now and then, and begins with the newest complete checkpoint.

        checkpoints = torusrun.Checkpoints(model=model, optimizer=optimizer)
        for step in range(checkpoints.resume(), total):
            ...
            checkpoints.after_step(step + 1)
            if checkpoints.asked_to_stop:
                sys.exit(torusrun.LATER)
        checkpoints.close()

    `objects` are all that the training needs to continue, each with `state_dict` and `load_state_dict`. All ranks
    make it alike, after `init_process_group`, and call each method at the same time. Rank 0's state is saved, and every
    rank loads it: what differs between ranks (shards of FSDP, random generators) is not saved.

    A save copies the state to memory; another process on its host writes it while the training continues, also if the
    training is killed. It is due after `every` steps, or by default at the interval that loses least time (Daly). The
    `last` newest checkpoints stay. `folder` is for them outside of a run of torusrun; a run has its own.

    `asked_to_stop` is True once the run was asked to stop, and the state after the newest step is saved.
    """

    def __init__(
        self, *, folder: str | os.PathLike[str] | None = None, every: int | None = None, last: int = 3, **objects: Any
    ) -> None:
        if not objects:
            raise ValueError("name the contents of a checkpoint, as in Checkpoints(model=model, optimizer=optimizer)")
        for name, found in objects.items():
            if not (hasattr(found, "state_dict") and hasattr(found, "load_state_dict")):
                raise TypeError(f"{name}: a {type(found).__name__} has no state_dict() and load_state_dict()")
        for name, number in {"every": 1 if every is None else every, "last": last}.items():
            if type(number) is not int or number < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {number!r}")
        self._parts: dict[str, Stateful] = objects
        self._named, self._every, self._last = folder, every, last
        self.asked_to_stop = self._began = False
        self._writer: Writer | None = None  # on rank 0, with the lock of the folder
        self._lock = -1

    def resume(self) -> int:
        """Load the newest complete checkpoint; the steps that were taken until then, 0 at a fresh start.

        Raises RuntimeError or ValueError on every rank if the folder cannot be used, or the state cannot be loaded.
        """
        self._together = Together()
        given = Given.by(os.environ, self._together.ranks)
        folder = given.checkpoints or self._named
        if not folder:
            raise ValueError("TORUSRUN_CHECKPOINTS is not set: outside of a run of torusrun, name a `folder`")
        self._folder = Path(folder)
        Plain().check(self._state())
        self._heartbeat = HeartbeatFile(given.heartbeat if self._together.rank == 0 else None)
        self._metrics = Metrics(given.metrics if self._together.rank == 0 else None, given.attempt)
        newest, opened = self._newest(given)
        self._saver = Saver(
            opened,
            self._writer,
            Interval(self._every, given.mean_time_to_failure_s),
            from_rank_0=lambda number: self._together.numbers([number])[0],
            report=self._report,
        )
        if newest:
            self._load(*newest)
        self._steps = self._saved = newest[0] if newest else 0
        self._saver.begin(self._steps)
        self._request, self._signal = StopRequest(), given.stop_signal
        self._handled_before = signal.signal(self._signal, self._request.note)
        self._began = True
        return self._steps

    def after_step(self, steps: int) -> None:
        """Note that so many steps are done, and save if that is due: to be called after every step, by all ranks.

        After a request to stop it waits on every rank until the state is on the disk: launchers end all ranks once one
        has ended. Raises OSError on every rank if the state cannot be written then, RuntimeError before `resume`.
        """
        self._check_began("after_step")
        before, self._steps = self._steps, steps
        self._heartbeat.step(steps)
        if self._together.any_before(self._request.requested) and not self.asked_to_stop:
            self._save_last()
            self.asked_to_stop = True
        elif self._saver.due(before, steps):
            self._save()
            self._saver.measure(steps)
        else:
            self._saver.look()

    def close(self) -> None:
        """Save the last state, and wait until it is complete. Raises the errors of `after_step`."""
        self._check_began("close")
        try:
            self._save_last()
        finally:
            if self._writer:
                self._close(self._writer)
            self._together.wait()
            signal.signal(self._signal, self._handled_before or signal.SIG_DFL)

    def _check_began(self, method: str) -> None:
        if not self._began:
            first = "call it once before the first step, as in `for step in range(checkpoints.resume(), total)`"
            raise RuntimeError(f"Checkpoints.{method}() comes after resume(): {first}")

    def _newest(self, given: Given) -> tuple[tuple[int, str] | None, CheckpointFolder | None]:
        """The steps and the checksum of the newest complete checkpoint, and on rank 0 the folder, which it opens."""
        steps, checksum, opened, error = FRESH, "0" * 64, None, None
        if self._together.rank == 0:
            try:
                opened = self._open(given)
                if newest := opened.newest:
                    steps, checksum = newest.step, newest.sha256[STATE]
            except (OSError, RuntimeError, ValueError) as failed:
                steps, error = FAILED, failed
        words = [int(checksum[n : n + 8], 16) for n in range(0, 64, 8)]
        steps, *words = self._together.numbers([steps, *words])
        if steps == FAILED:
            raise error or RuntimeError(f"{self._folder}: rank 0 cannot use this folder; its error says why")
        return (None if steps == FRESH else (steps, "".join(f"{word:08x}" for word in words))), opened

    def _open(self, given: Given) -> CheckpointFolder:
        """The folder, for one training at a time; starts the process that writes.

        Raises OSError, RuntimeError or ValueError.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self._folder)
        _refuse_foreign(self._folder)
        opened = CheckpointFolder(self._folder, given.attempt, CheckpointKeys(last=self._last))
        self._writer = writer.start_anew((self._lock, *given.kept))
        return opened

    def _close(self, writing: Writer) -> None:
        """End the process that writes, and let another training use the folder."""
        writing.close()
        with suppress(OSError):  # a file system without locks; `close` is not enough, as for the process
            lock.release(self._lock)
        os.close(self._lock)

    def _load(self, steps: int, checksum: str) -> None:
        state = load(self._folder, name_of(steps), checksum, CPU)
        if state.keys() != self._parts.keys():
            there, wanted = ", ".join(state), ", ".join(self._parts)
            raise ValueError(f"{self._folder / name_of(steps)}: it has {there}, and the script has {wanted}")
        for name, part in self._parts.items():
            part.load_state_dict(state[name])

    def _save(self) -> None:
        began_s, self._saved = time.perf_counter(), self._steps
        self._heartbeat.begins("checkpoint")
        self._saver.save(began_s, Progress(self._steps), 0.0, self._state)
        self._heartbeat.step(self._steps)

    def _state(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts.items()}

    def _save_last(self) -> None:
        """Save the newest state if it is not saved, and wait on every rank until it is complete."""
        if self._saved != self._steps:
            self._save()
        self._heartbeat.begins("checkpoint")  # the write may take longer than steps
        if not self._saver.finish_on_all_ranks():
            error = self._saver.error
            why = f": {error.strerror or error}" if error else ", as rank 0 reports"
            raise OSError(f"{self._folder}: the last checkpoint (step {self._steps}) could not be written{why}")

    def _report(self, written: Written, saving_s: float) -> None:
        if written.error is None:
            self._metrics.write(events.CHECKPOINT, step=written.order.steps, checkpoint_s=round(saving_s, 4))
        else:
            newest = self._saver.folder.newest if self._saver.folder else None
            what = f"{self._folder}: the checkpoint of step {written.order.steps} could not be written"
            older = f"newest complete checkpoint: {newest.name if newest else 'none'}"
            warn(f"torusrun: {what}: {written.error.strerror or written.error}; {older}")


class Together:
    """What the ranks of a script decide together, by a gloo group of their own: so nothing waits for a GPU.

    They are all ranks of its process group; one rank without a process group. All must make it together. Raises
    RuntimeError if there are other ranks that this one has not met yet.
    """

    def __init__(self) -> None:
        met = dist.is_available() and dist.is_initialized()
        if not met and (world := os.environ.get("WORLD_SIZE", "1")) != "1":
            raise RuntimeError(f"there are {world} ranks (WORLD_SIZE): call init_process_group before resume()")
        if met and (why := too_few(dist.get_world_size())):
            raise RuntimeError(why)
        self._group = dist.new_group(backend="gloo") if met else None
        self.rank, self.ranks = (dist.get_rank(), dist.get_world_size()) if met else (0, 1)
        self._flag = torch.zeros(1)
        self._sent: dist.Work | None = None

    def numbers(self, own: Sequence[int]) -> list[int]:
        """Rank 0's numbers on every rank; all must call it together, with as many."""
        return agreed_numbers(own, CPU, self._group) if self._group else list(own)

    def any_before(self, own: bool) -> bool:
        """Whether any rank passed True in the call before this one; all must call it together.

        It answers one call late, so that no rank waits for a slower one.
        """
        if self._group is None:
            return own
        requested = self.wait()
        self._flag.fill_(own)
        self._sent = dist.all_reduce(self._flag, dist.ReduceOp.MAX, group=self._group, async_op=True)
        return requested

    def wait(self) -> bool:
        """Whether any rank passed True in the newest call of `any_before`, once all have called it."""
        if self._sent is None:
            return False
        self._sent.wait()
        return bool(self._flag.item())


def _locked(folder: Path) -> int:
    """The lock of the folder. Raises RuntimeError if another training keeps it."""

    def say() -> None:
        warn(f"torusrun: {folder}: waits for the previous training, which still writes")

    descriptor = lock.opened(folder / LOCK)
    if lock.take(descriptor, wait_s=LOCKED_S, waiting=say) is False:
        os.close(descriptor)
        raise RuntimeError(f"{folder}: another training saves its checkpoints here; end it, or name another folder")
    return descriptor


def _refuse_foreign(folder: Path) -> None:
    """Raises ValueError if something else has the name of a checkpoint: it would be deleted as an old one."""
    for path in manifest.candidates(folder):
        if not os.path.lexists(path / manifest.MANIFEST):
            raise ValueError(f"{path}: this is not a checkpoint of torusrun; move it away, or name another folder")
