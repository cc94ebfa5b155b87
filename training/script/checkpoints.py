"""`torusrun.Checkpoints`: what `training/checkpoint/` does for our own training, for a script of the user's own."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Protocol

from torusrun.training.checkpoint.interval import Interval
from torusrun.training.checkpoint.loading import load
from torusrun.training.checkpoint.manifest import STATE, name_of
from torusrun.training.checkpoint.plain import Plain
from torusrun.training.checkpoint.writer import Written
from torusrun.training.reporting import events
from torusrun.training.reporting.metrics import Metrics
from torusrun.training.reporting.output import warn
from torusrun.training.script.given import Given
from torusrun.training.script.heartbeat import HeartbeatFile
from torusrun.training.script.opened import Opened
from torusrun.training.script.together import CPU, Together
from torusrun.training.step.stop import StopRequest

FRESH, FAILED = -1, -2  # in place of a number of steps


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
        self._opened: Opened | None = None  # on rank 0
        self._saving_s = 0.0  # how long the training waited for the newest save

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
        self._plain = Plain()
        self._state()
        self._heartbeat = HeartbeatFile(given.heartbeat if self._together.rank == 0 else None)
        self._metrics = Metrics(given.metrics if self._together.rank == 0 else None, given.attempt)
        self._interval = Interval(self._every, given.mean_time_to_failure_s)
        newest = self._newest(given)
        if newest:
            self._load(*newest)
        self._steps = self._saved = newest[0] if newest else 0
        self._interval.begin(self._steps, time.perf_counter())
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
        elif self._interval.due(before, steps):
            self._save_and_measure()
        elif self._opened:
            self._opened.flight.look()

    def close(self) -> None:
        """Save the last state, and wait until it is complete. Raises the errors of `after_step`."""
        self._check_began("close")
        try:
            self._save_last()
        finally:
            if self._opened:
                self._opened.close()
            self._together.wait()
            signal.signal(self._signal, self._handled_before or signal.SIG_DFL)

    def _check_began(self, method: str) -> None:
        if not self._began:
            first = "call it once before the first step, as in `for step in range(checkpoints.resume(), total)`"
            raise RuntimeError(f"Checkpoints.{method}() comes after resume(): {first}")

    def _newest(self, given: Given) -> tuple[int, str] | None:
        """The steps and the checksum of the newest complete checkpoint, which rank 0 finds."""
        steps, checksum, error = FRESH, "0" * 64, None
        if self._together.rank == 0:
            try:
                self._opened = Opened(self._folder, given.attempt, self._last, given.kept, self._report)
                if newest := self._opened.folder.newest:
                    steps, checksum = newest.step, newest.sha256[STATE]
            except (OSError, RuntimeError, ValueError) as found:
                steps, error = FAILED, found
        words = [int(checksum[n : n + 8], 16) for n in range(0, 64, 8)]
        steps, *words = self._together.numbers([steps, *words])
        if steps == FAILED:
            raise error or RuntimeError(f"{self._folder}: rank 0 cannot use this folder; its error says why")
        return None if steps == FRESH else (steps, "".join(f"{word:08x}" for word in words))

    def _load(self, steps: int, checksum: str) -> None:
        state = load(self._folder, name_of(steps), checksum, CPU)
        if state.keys() != self._parts.keys():
            there, wanted = ", ".join(state), ", ".join(self._parts)
            raise ValueError(f"{self._folder / name_of(steps)}: it has {there}, and the script has {wanted}")
        for name, found in self._parts.items():
            found.load_state_dict(state[name])

    def _save_and_measure(self) -> None:
        """Save; then rank 0 knows after how many steps the next one is due."""
        self._save()
        if self._interval.measures:
            now_s, after = time.perf_counter(), 0
            if self._opened:
                writing_s = self._opened.flight.writing_s
                after = self._interval.measured(self._steps, now_s, save_s=self._saving_s, writing_s=writing_s)
            self._interval.next(self._steps, self._together.numbers([after])[0])

    def _save(self) -> None:
        began_s, self._saved = time.perf_counter(), self._steps
        self._heartbeat.begins("checkpoint")
        if self._opened:
            self._opened.begin(self._steps, self._state())
            self._saving_s = time.perf_counter() - began_s
            self._opened.flight.look()
        self._heartbeat.step(self._steps)

    def _state(self) -> dict[str, Any]:
        """The state of all parts. Raises ValueError if it could not be loaded again, judged by the types in it."""
        state = {name: found.state_dict() for name, found in self._parts.items()}
        self._plain.check(state)
        return state

    def _save_last(self) -> None:
        """Save the newest state if it is not saved, and wait on every rank until it is complete."""
        if self._saved != self._steps:
            self._save()
        self._heartbeat.begins("checkpoint")  # the write may take longer than steps
        error = self._opened.flight.finish() if self._opened else None
        if self._together.numbers([error is not None])[0]:
            why = f": {error.strerror or error}" if error else ", as rank 0 reports"
            raise OSError(f"{self._folder}: the last checkpoint (step {self._steps}) could not be written{why}")

    def _report(self, written: Written) -> None:
        if written.error is None:
            self._metrics.write(events.CHECKPOINT, step=written.order.steps, checkpoint_s=round(self._saving_s, 4))
        elif self._opened:
            newest = self._opened.folder.newest
            what = f"{self._folder}: the checkpoint of step {written.order.steps} could not be written"
            older = f"newest complete checkpoint: {newest.name if newest else 'none'}"
            warn(f"torusrun: {what}: {written.error.strerror or written.error}; {older}")
