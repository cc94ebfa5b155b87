"""Saves and loads checkpoints on all ranks: rank 0 reads the folder and has them written, all load the same one."""

from __future__ import annotations

import time
from typing import NoReturn

import torch

from torusrun.training.checkpoint.in_flight import InFlight
from torusrun.training.checkpoint.interval import Interval
from torusrun.training.checkpoint.loading import load
from torusrun.training.checkpoint.manifest import STATE, name_of, step_of
from torusrun.training.checkpoint.node_state import NodeState
from torusrun.training.checkpoint.plain import Plain
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.checkpoint.writer import Writer, Written
from torusrun.training.complete import lacks
from torusrun.training.config import Config
from torusrun.training.learner import Learner
from torusrun.training.meeting.agree import agreed, agreed_number
from torusrun.training.meeting.rendezvous import wait_for_rank_0
from torusrun.training.meeting.signed_store import SignedStore
from torusrun.training.parts import Parts
from torusrun.training.recipe.protocols import Optimizer
from torusrun.training.reporting.exits import TrainingError
from torusrun.training.reporting.output import warn
from torusrun.training.reporting.reporter import Reporter


def check_parts(parts: Parts) -> None:
    """Raises ConfigError, before the first step, if a checkpoint of these parts could not be loaded again."""
    states = {"train.model": parts.model.state_dict()}
    if lacks(parts.optimizer, Optimizer, "gather"):  # others may have no state before all ranks have met
        states["train.optimizer"] = parts.optimizer.state_dict()
    Plain().check(states)


class Saver:
    """The checkpoints of an attempt, on each of its ranks; only rank 0 has a folder, and saves in flight.

    A save copies the state to memory; the `writer` writes it while the training continues. One write is in flight at
    most: a save that is due earlier waits for it, so that a run has the checkpoints that it names.
    """

    def __init__(self, config: Config, learner: Learner, reporter: Reporter, writer: Writer | None) -> None:
        self._config, self._learner, self._reporter = config, learner, reporter
        train = config.train
        self._flight: InFlight | None = None
        if writer:
            folder = CheckpointFolder(config.checkpoints, config.attempt, train.checkpoints)
            self._flight = InFlight(folder, writer, self._report)
        self._interval = Interval(train.checkpoint_every_steps, config.mean_time_to_failure_s)
        self._memory = NodeState(config, learner) if train.checkpoints.memory else None
        self._plain = Plain()
        self._saving_s = 0.0  # how long the training waited for the newest save

    def resume(self, meeting: SignedStore) -> str | None:
        """Continue from the newest complete checkpoint, or from a newer state in the memory of a node.

        Returns its name, or where it was; None for a fresh start. Rank 0 sends the name and the checksum to the others
        through the store `meeting`.
        """
        if self._flight is not None:
            newest = self._flight.folder.newest
            meeting.set("resume", f"{newest.name} {newest.sha256[STATE]}" if newest else "")
        wait_for_rank_0(meeting, "resume")
        answer = meeting.get("resume").decode()
        name, _, sha256 = answer.partition(" ")
        if self._memory and (found := self._memory.resume(meeting, newer_than=step_of(name) or 0)):
            return found
        if answer:
            self._learner.restore(load(self._config.checkpoints, name, sha256, torch.device("cpu")))
            return name
        others = self._learner.start_alike()
        if others and self._flight is not None:
            drew = f"rank {', '.join(map(str, others))} drew different weights from the seed than rank 0"
            warn(f"training: {drew}; all begin with rank 0's")
        return None

    def begin(self) -> None:
        """The first step of the attempt begins."""
        self._interval.begin(self._learner.progress.steps, time.perf_counter())

    def due(self) -> bool:
        """Whether a checkpoint is due after the newest steps; the same on all ranks."""
        return self._interval.due(self._learner.before.steps, self._learner.progress.steps)

    def evaluated(self, accuracy: float) -> None:
        """Save if the best checkpoint is to stay and this accuracy is the best. All ranks must call it together.

        A checkpoint of this very state gets the accuracy, and is not written again.
        """
        if not self._config.train.checkpoints.best:
            return
        missing = False
        if self._flight:
            self._flight.finish()
            missing = accuracy > self._flight.folder.best and not self._added(self._flight.folder, accuracy)
        if agreed(missing, self._learner.device):
            self.save(accuracy)

    def look(self) -> None:
        """Advance the save in flight without waiting: to be called after every step."""
        if self._flight:
            self._flight.look()

    def keep(self) -> None:
        """Copy the state to the memory of the node, if the recipe says so: to be called after every step."""
        if self._memory:
            self._memory.keep()

    def end(self) -> None:
        """The attempt ended well: remove the copies in the memory of the nodes."""
        if self._memory:
            self._memory.end()

    def save(self, accuracy: float | None = None) -> None:
        """Check that all ranks hold the same finite weights, and begin a checkpoint. All ranks must call it together.

        Raises TrainingError if they are not finite, ConfigError if the state could not be loaded again. The training
        continues with the older checkpoints if this one cannot be written.
        """
        self._begin(accuracy)
        if self._interval.measures:
            steps, now_s = self._learner.progress.steps, time.perf_counter()
            writing_s = self._flight.writing_s if self._flight else 0.0
            after = self._interval.measured(steps, now_s, save_s=self._saving_s, writing_s=writing_s)
            self._interval.next(steps, agreed_number(after, self._learner.device))

    def save_last(self) -> bool:
        """Save, and wait until the checkpoint is complete; False on all ranks if it cannot be written.

        It is the last one of the attempt, so a failure is reported to the user.
        """
        self._begin()
        error = self._flight.finish() if self._flight else None
        if error and self._flight:
            self._reporter.lost_checkpoint(error, self._flight.folder.newest)
        return agreed(error is None, self._learner.device)

    def _begin(self, accuracy: float | None = None) -> None:
        began_s = time.perf_counter()
        self._reporter.saving()
        self._learner.check_alike()
        if not self._learner.finite():
            self._refuse()
        self._learner.gather()
        if self._flight:
            self._flight.finish()
            learner = self._learner
            order = self._flight.folder.order(learner.progress, learner.epochs, [], accuracy)
            state = learner.state()
            self._plain.check({f"train.{part}": state[part] for part in ("model", "optimizer")})
            self._flight.begin(order, state)
        self._saving_s = time.perf_counter() - began_s
        self.look()

    def _refuse(self) -> NoReturn:
        """Raises TrainingError, the same on all ranks: a state that is not finite replaces no older one."""
        if self._flight:
            self._flight.finish()
        if self._memory:
            self._memory.end()  # it may hold the same state, from which the next attempt would continue
        newest = self._flight.folder.newest if self._flight else None
        step = agreed_number(newest.step if newest else -1, self._learner.device)
        raise TrainingError(
            f"after step {self._learner.progress.steps} the loss or a weight is not finite, so this state was not "
            f"saved; newest complete checkpoint: {'none' if step < 0 else name_of(step)}; submit a run with a lower "
            "learning rate, a longer warm-up or train.clip_norm"
        )

    def _added(self, folder: CheckpointFolder, accuracy: float) -> bool:
        """Whether there is a checkpoint of this state, to which the accuracy was added if the disk lets it."""
        try:
            return folder.evaluated(self._learner.progress.steps, accuracy)
        except OSError as error:
            self._reporter.failed_checkpoint(self._learner.progress, error)
            return True

    def _report(self, written: Written) -> None:
        if written.error:
            self._reporter.failed_checkpoint(written.order.progress, written.error)
        else:
            self._reporter.checkpoint(written.order, self._saving_s, written.writing_s)
