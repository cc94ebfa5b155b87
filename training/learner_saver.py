"""The checkpoints of our own training: rank 0 reads the folder and has them written, all ranks load the same."""

from __future__ import annotations

import time
from typing import NoReturn

import torch

from torusrun.training.checkpoint.interval import Interval
from torusrun.training.checkpoint.loading import Plain, load
from torusrun.training.checkpoint.manifest import STATE, name_of, step_of
from torusrun.training.checkpoint.node_state import NodeState
from torusrun.training.checkpoint.saver import Saver
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.checkpoint.writer import Writer, Written
from torusrun.training.config import Config
from torusrun.training.learner import Learner
from torusrun.training.meeting.agree import agreed, agreed_number
from torusrun.training.meeting.rendezvous import SignedStore, wait_for_rank_0
from torusrun.training.parts import Parts
from torusrun.training.reporting.exits import TrainingError
from torusrun.training.reporting.output import warn
from torusrun.training.reporting.reporter import Reporter


def check_parts(parts: Parts) -> None:
    """Raises ConfigError, before the first step, if a checkpoint of these parts could not be loaded again."""
    Plain().check({"train.model": parts.model.state_dict(), "train.optimizer": parts.optimizer.state_dict()})


class LearnerSaver:
    """The checkpoints of an attempt, on each of its ranks; only rank 0 has a folder and a `writer`."""

    def __init__(self, config: Config, learner: Learner, reporter: Reporter, writer: Writer | None) -> None:
        self._config, self._learner, self._reporter = config, learner, reporter
        keys = config.train.checkpoints
        self._folder = CheckpointFolder(config.checkpoints, config.attempt, keys) if writer else None
        self._saver = Saver(
            self._folder, writer, Interval(config.train.checkpoint_every_steps, config.mean_time_to_failure_s),
            from_rank_0=lambda number: agreed_number(number, learner.device), report=self._report, keys="train.",
        )  # fmt: skip
        self._memory = NodeState(config, learner) if keys.memory else None

    def resume(self, meeting: SignedStore) -> str | None:
        """Continue from the newest complete checkpoint, or from a newer state in the memory of a node.

        Returns its name, or where it was; None for a fresh start. Rank 0 sends the name and the checksum to the others
        through the store `meeting`.
        """
        if self._folder:
            newest = self._folder.newest
            meeting.set("resume", f"{newest.name} {newest.sha256[STATE]}" if newest else "")
        wait_for_rank_0(meeting, "resume")
        answer = meeting.get("resume").decode()
        name, _, sha256 = answer.partition(" ")
        if self._memory and (place := self._memory.resume(meeting, newer_than=step_of(name) or 0)):
            return place
        if answer:
            self._learner.restore(load(self._config.checkpoints, name, sha256, torch.device("cpu")))
            return name
        others = self._learner.start_alike()
        if others and self._folder:
            drew = f"rank {', '.join(map(str, others))} drew different weights from the seed than rank 0"
            warn(f"training: {drew}; all begin with rank 0's")
        return None

    def begin(self) -> None:
        """The first step of the attempt begins."""
        self._saver.begin(self._learner.progress.steps)

    def after_step(self) -> None:
        """Save if a checkpoint is due, advance the save in flight, and copy the state to the memory of the node."""
        if self._saver.due(self._learner.before.steps, self._learner.progress.steps):
            self.save()
        else:
            self._saver.look()
        if self._memory:  # after the save: an attempt that continues from this copy has its checkpoint due or done
            self._memory.keep()

    def evaluated(self, accuracy: float) -> None:
        """Save if the best checkpoint is to stay and this accuracy is the best. All ranks must call it together.

        A checkpoint of this very state gets the accuracy, and is not written again.
        """
        if not self._config.train.checkpoints.best:
            return
        missing = False
        if self._folder:
            self._saver.finish()
            missing = accuracy > self._folder.best and not self._added(self._folder, accuracy)
        if agreed(missing, self._learner.device):
            self.save(accuracy)

    def end(self) -> None:
        """The attempt ended well: remove the copies in the memory of the nodes."""
        if self._memory:
            self._memory.end()

    def save(self, accuracy: float | None = None) -> None:
        """Begin a checkpoint. All ranks must call it together.

        Raises TrainingError if the weights are not finite, ConfigError if the state could not be loaded again.
        """
        self._begin(accuracy)
        self._saver.measure(self._learner.progress.steps)

    def save_last(self) -> bool:
        """Save, and wait until the checkpoint is complete; False on all ranks if it cannot be written.

        The attempt saves no more, so a failure is reported to the user.
        """
        self._begin()
        written = self._saver.finish_on_all_ranks()
        if self._folder and self._saver.error:
            self._reporter.lost_checkpoint(self._saver.error, self._folder.newest)
        return written

    def _begin(self, accuracy: float | None = None) -> None:
        """Check that all ranks hold the same finite weights, and save."""
        began_s, learner = time.perf_counter(), self._learner
        self._reporter.saving()
        learner.check_alike()
        if not learner.finite():
            self._refuse()
        self._saver.save(began_s, learner.progress, learner.epochs, learner.state, accuracy)

    def _refuse(self) -> NoReturn:
        """Raises TrainingError, the same on all ranks: a state that is not finite replaces no older state."""
        self._saver.finish()
        if self._memory:
            self._memory.end()  # it may hold the same state, from which the next attempt would continue
        newest = self._folder.newest if self._folder else None
        step = agreed_number(newest.step if newest else -1, self._learner.device)
        raise TrainingError(
            f"after step {self._learner.progress.steps} the loss or a weight is not finite, so this state was not "
            f"saved; newest complete checkpoint: {'none' if step < 0 else name_of(step)}; submit a run with a lower "
            "learning rate, a longer warm-up or train.clip_norm"
        )

    def _added(self, folder: CheckpointFolder, accuracy: float) -> bool:
        """Whether a checkpoint has this state; it gets the accuracy, if the disk lets it."""
        try:
            return folder.evaluated(self._learner.progress.steps, accuracy)
        except OSError as error:
            self._reporter.failed_checkpoint(self._learner.progress, error)
            return True

    def _report(self, written: Written, saving_s: float) -> None:
        if written.error:
            self._reporter.failed_checkpoint(written.order.progress, written.error)
        else:
            self._reporter.checkpoint(written.order, saving_s, written.writing_s)
