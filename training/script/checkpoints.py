"""`torusrun.Checkpoints`: the checkpoints of a user's script; training/learner_saver.py has those of our training."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from torusrun.training.checkpoint import manifest, writer
from torusrun.training.checkpoint.interval import Interval
from torusrun.training.checkpoint.loading import Plain, load
from torusrun.training.checkpoint.manifest import METADATA, STATE, name_of
from torusrun.training.checkpoint.saver import Saver
from torusrun.training.checkpoint.store import CheckpointFolder, Order
from torusrun.training.checkpoint.writer import Writer, Written
from torusrun.training.files import lock
from torusrun.training.progress import Progress
from torusrun.training.recipe.train import CheckpointKeys
from torusrun.training.reporting import events
from torusrun.training.reporting.exits import StopRequest
from torusrun.training.reporting.metrics import Metrics
from torusrun.training.reporting.output import warn
from torusrun.training.script.given import Given, HeartbeatFile
from torusrun.training.script.parts import ScriptParts, Stateful
from torusrun.training.script.together import CPU, Together

FRESH, FAILED = -1, -2  # in place of a number of steps
LOCK = ".lock"
LOCKED_S = 2 * writer.ALONE_S  # a writer whose training has ended holds the lock for ALONE_S at most


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
    make it alike, after `init_process_group`, and call each method at the same time. Of objects with DTensors (FSDP2,
    tensor parallel) every rank saves its shards, and any number of ranks can load them. Of all others rank 0's state is
    saved, and every rank loads it: what else differs between ranks (random generators) is not saved.

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
        for name, part in objects.items():
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise TypeError(f"{name}: a {type(part).__name__} has no state_dict() and load_state_dict()")
        for name, number in {"every": 1 if every is None else every, "last": last}.items():
            if type(number) is not int or number < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {number!r}")
        self._contents: dict[str, Stateful] = objects
        self._named, self._every, self._last = folder, every, last
        self.asked_to_stop = self._began = False
        self._writer: Writer | None = None  # on rank 0, with the lock of the folder; on every rank that writes shards
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
        self._parts = ScriptParts(self._contents)
        Plain().check(self._parts.plain())
        self._heartbeat = HeartbeatFile(given.heartbeat if self._together.rank == 0 else None)
        self._metrics = Metrics(given.metrics if self._together.rank == 0 else None, given.attempt)
        newest, opened = self._newest(given)
        self._saver = self._saver_of(given, opened)
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

        After a request to stop it waits on every rank until the state is on the disk: launchers end all ranks once a
        rank has ended. Raises OSError on every rank if the state cannot be written then, RuntimeError before `resume`.
        """
        self._check_began("after_step")
        before, self._steps = self._steps, steps
        self._heartbeat.step(steps)
        requested, written = self._together.least_before(-self._request.requested, self._saver.written)
        if requested and not self.asked_to_stop:
            self._save_last()
            self.asked_to_stop = True
        elif self._saver.due(before, steps):
            self._save()
            self._saver.measure(steps)
        else:
            self._saver.look(written)

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

    def _saver_of(self, given: Given, opened: CheckpointFolder | None) -> Saver:
        interval = Interval(self._every, given.mean_time_to_failure_s)
        common: dict[str, Any] = {"from_rank_0": lambda n: self._together.numbers([n])[0], "report": self._report}
        if not self._parts.shared:
            return Saver(opened, self._writer, interval, **common)
        from torusrun.training.checkpoint.sharded_saver import ShardedSaver
        from torusrun.training.checkpoint.shards import ShardSnapshot

        order = Order(str(self._folder), given.attempt, 0, 0, 0.0, None, None, {}, token=self._token)
        writing = self._writer = self._writer or writer.start_anew(given.kept)
        shares = ShardSnapshot(self._together.group)
        return ShardedSaver(opened, writing, interval, **common, shares=shares, order=order, texts=self._together.texts)

    def _newest(self, given: Given) -> tuple[tuple[int, str, str] | None, CheckpointFolder | None]:
        """The steps and the checksums of the newest complete checkpoint, and on rank 0 the folder, which it opens.

        The checksum of `.metadata` is '' for a state that is not sharded.
        """
        steps, checksums, opened, error = FRESH, ["", ""], None, None
        if self._together.rank == 0:
            try:
                opened = self._open(given)
                if newest := opened.newest:
                    steps, checksums = newest.step, [newest.sha256[STATE], newest.sha256.get(METADATA, "")]
            except (OSError, RuntimeError, ValueError) as failed:
                steps, error = FAILED, failed
        own = json.dumps([steps, time.time_ns(), *checksums])
        steps, self._token, *checksums = json.loads(self._together.texts(own)[0])
        if steps == FAILED:
            raise error or RuntimeError(f"{self._folder}: rank 0 cannot use this folder; its error says why")
        return (None if steps == FRESH else (steps, checksums[0], checksums[1])), opened

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
        if self._together.rank:
            return
        with suppress(OSError):  # a file system without locks; `close` is not enough, as for the process
            lock.release(self._lock)
        os.close(self._lock)

    def _load(self, steps: int, checksum: str, of_shards: str) -> None:
        path, shared = self._folder / name_of(steps), bool(self._parts.shared)
        if shared != bool(of_shards):
            saved, wanted = ("whole", "sharded over the ranks") if shared else ("sharded over the ranks", "whole")
            raise ValueError(f"{path}: its state is {saved}, and that of the script is {wanted}")
        state, parts = load(self._folder, name_of(steps), checksum, CPU), self._contents.keys() - self._parts.shared
        if state.keys() != parts:
            saved, wanted = (", ".join(names) or "nothing" for names in (state, sorted(parts)))
            raise ValueError(f"{path}: it has {saved}, and the script has {wanted}")
        if shared:
            self._parts.load_shared(path, of_shards, self._together.group)
        self._parts.load_plain(state)

    def _save(self) -> None:
        began_s, self._saved = time.perf_counter(), self._steps
        self._heartbeat.begins("checkpoint")
        state = self._parts.states if self._parts.shared else self._parts.plain
        self._saver.save(began_s, Progress(self._steps), 0.0, state)
        self._heartbeat.step(self._steps)

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
