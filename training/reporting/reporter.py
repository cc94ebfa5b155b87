"""Rank 0's reports (events for the metrics, a last checkpoint that failed), and every rank's step times."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import asdict

import torch
import torch.distributed as dist

from torusrun.training.checkpoint.manifest import Checkpoint
from torusrun.training.checkpoint.store import Order
from torusrun.training.collectives import device as devices
from torusrun.training.config import Config, Ranks
from torusrun.training.evaluation import Evaluation
from torusrun.training.files.trusted import put
from torusrun.training.learner import Learner
from torusrun.training.meeting.agree import agreed
from torusrun.training.progress import Progress
from torusrun.training.recipe.protocols import DataSet
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.reporting import events, start
from torusrun.training.reporting.heartbeat import CHECKPOINT, EVALUATION, FIRST_STEP, STEPS, Heartbeat, StepTimes
from torusrun.training.reporting.metrics import Metrics
from torusrun.training.reporting.output import warn


class Meter:
    """Adds up the times of steps; those of evaluations and checkpoints do not count."""

    def __init__(self) -> None:
        self._images = self._recent_images = 0
        self._spent_s = self._recent_s = 0.0

    def add(self, images: int, spent_s: float) -> None:
        self._images, self._spent_s = self._images + images, self._spent_s + spent_s
        self._recent_images, self._recent_s = self._recent_images + images, self._recent_s + spent_s

    def recent_images_per_s(self) -> float:
        """The rate since the last call."""
        rate = _rate(self._recent_images, self._recent_s)
        self._recent_images, self._recent_s = 0, 0.0
        return rate

    def images_per_s(self) -> float:
        """The rate of all steps; 0 without a step."""
        return _rate(self._images, self._spent_s)


def _rate(images: int, spent_s: float) -> float:
    return round(images / spent_s, 1) if spent_s else 0.0


SHOWN = 3


class Problems:
    """The `problems` of this rank's data set, if it reports any."""

    def __init__(self, data: DataSet, device: torch.device) -> None:
        self._data, self._device = data, device
        self._told = 0

    def tell(self) -> int:
        """Write the new problems to this rank's output; returns the count over all ranks. All must call it together."""
        problems = self._data.problems()
        for problem in problems[self._told :]:
            warn(f"training: {problem}")
        self._told = len(problems)
        total = torch.tensor([self._told], device=self._device)
        dist.all_reduce(total)
        return int(total)

    def none_tested(self, test_samples: int) -> ConfigError:
        """The error of an evaluation without a good sample; it names the newest bad samples of this rank."""
        newest = "; ".join(self._data.problems()[-SHOWN:])
        return ConfigError(
            f"train.data: none of the {test_samples} test samples can be read, so there is no accuracy: "
            f"{newest or 'the logs of other ranks name them'}; copy these files again"
        )


FIRST = 2  # calls: on a GPU the second one waits for the device to finish the first


class Reporter:
    """Writes the events of one attempt; a rank other than 0 reports only the times of its steps."""

    def __init__(self, config: Config, ranks: Ranks, learner: Learner) -> None:
        self._config, self._ranks, self._learner = config, ranks, learner
        self._metrics = Metrics(config.metrics if ranks.rank == 0 else None, config.attempt)
        self._problems = Problems(learner.data, learner.device)
        self._times, self._meter = StepTimes(ranks.rank, config.token), Meter()
        self._heartbeat = Heartbeat(ranks.rank, config.token)
        self._first_s: list[float] | None = []  # of the first calls of a step, until they are reported
        self._calls = -1, 0  # the number of the phase, and how often its steps began

    def start(self, resumed_from: str | None) -> None:
        learner, device = self._learner, self._learner.device
        optimizer = asdict(self._config.train.optimizer)
        learner.trace.head(buckets=learner.steps.buckets(), norm=learner.norms.facts(), optimizer=optimizer)
        self._write(
            events.START, resumed_from=resumed_from, world=self._ranks.world, grid=list(self._config.grid),
            device=device.type, backend=devices.backend(device), params=learner.parameters,
            compiled=learner.form.compiled, start_s=start.parts_s(),
            total_steps=self._total_steps, total_samples=learner.course.total_samples,
            torch=torch.__version__.split("+")[0], python=platform.python_version(), **devices.libraries(device),
        )  # fmt: skip

    def stepping(self) -> None:
        """Report that the next step begins. The first steps of a phase may take much longer than the others."""
        progress, (before, calls) = self._learner.progress, self._calls
        phase = self._learner.course.phase_at(progress.samples).number
        self._calls = phase, calls + 1 if phase == before else 1
        self._heartbeat.now(STEPS if self._calls[1] > FIRST else FIRST_STEP, progress.steps)

    def saving(self) -> None:
        """Report that a checkpoint begins."""
        self._heartbeat.now(CHECKPOINT, self._learner.progress.steps)

    def timed(self, spent_s: float) -> None:
        """Report that the newest steps took `spent_s`."""
        if self._first_s is not None and len(self._first_s) < FIRST:
            self._first_s.append(spent_s)
        learner, before, now = self._learner, self._learner.before, self._learner.progress
        self._meter.add(now.samples - before.samples, spent_s)
        self._times.add(now.steps, now.steps - before.steps, spent_s, learner.waited_s(), learner.read_s())

    def step(self) -> None:
        learner = self._learner
        self._write(
            events.STEP, total_steps=self._total_steps, total_samples=learner.course.total_samples,
            epoch=round(learner.epochs, 4), loss=round(learner.mean_loss, 5), lr=round(learner.last_rate, 6),
            images_per_s=self._meter.recent_images_per_s(),
            **({} if learner.loss_scale is None else {"loss_scale": learner.loss_scale}), **self._first(),
        )  # fmt: skip

    def _first(self) -> dict[str, float]:
        """The time of the attempt's first steps, once: they compile, allocate and choose algorithms."""
        if self._first_s is None or len(self._first_s) < FIRST:
            return {}
        spent_s, self._first_s = sum(self._first_s), None
        return {"first_steps_s": round(spent_s, 3)}

    def evaluation(self) -> Evaluation:
        """Evaluate on the test set; all ranks must call it together.

        Raises ConfigError if no test sample was good: the bad samples of each rank alone may be within its limit.
        """
        epoch = min(int(self._learner.epochs), self._config.train.epochs)  # the last batch may reach beyond it
        self._heartbeat.now(EVALUATION, self._learner.progress.steps)
        evaluation = self._learner.evaluate()
        lost, test_samples = self._problems.tell(), self._learner.data.test_samples
        if lost and test_samples and math.isnan(evaluation.model.accuracy):
            raise self._problems.none_tested(test_samples)
        self._write(events.EVAL, epoch=float(epoch), **evaluation.row(), **({"problems": lost} if lost else {}))
        return evaluation

    def checkpoint(self, order: Order, saving_s: float, writing_s: float) -> None:
        """Report a complete checkpoint, for which the training waited `saving_s`; it was written in `writing_s`."""
        seconds = {"seconds": round(saving_s, 4), "writing_s": round(writing_s, 4)}
        self._write_at(order.progress, events.CHECKPOINT, path=order.name, **seconds)

    def failed_checkpoint(self, progress: Progress, error: OSError) -> None:
        self._write_at(progress, events.CHECKPOINT_FAILED, error=error.strerror or str(error))

    def lost_checkpoint(self, error: OSError, newest: Checkpoint | None) -> None:
        """Report, in a place that the user reads, that the last checkpoint of the attempt failed."""
        step, folder = self._learner.progress.steps, self._config.checkpoints
        where = f"the checkpoint of step {step} could not be written to {folder}"
        newest_name = newest.name if newest else "none"
        todo = f"newest complete checkpoint: {newest_name}; free space there and resume the run"
        warn(f"training: {where}: {error.strerror or error}; {todo}")

    def stop(self, reason: str) -> None:
        self._write(events.STOP, reason=reason)

    def done(self, evaluation: Evaluation, checkpoint: str) -> None:
        self._write(events.DONE, **evaluation.row(), images_per_s=self._meter.images_per_s(), checkpoint=checkpoint)

    def end(self) -> None:
        """Write the pending lines of the trace."""
        self._learner.trace.flush()

    @property
    def _total_steps(self) -> int:
        return self._learner.course.total_steps(self._learner.progress)

    def _write(self, event: str, **values: object) -> None:
        self._write_at(self._learner.progress, event, **values)

    def _write_at(self, progress: Progress, event: str, **values: object) -> None:
        if event != events.STEP:
            self._learner.trace.flush()
        self._metrics.write(event, step=progress.steps, samples=progress.samples, **values)


DONE_SCHEMA = 1


def record_done(config: Config, ranks: Ranks, device: torch.device, progress: Progress) -> bool:
    """Rank 0 writes `config.done` at the end of the training; False on every rank if it could not.

    All ranks must call it together. An attempt without this file does not count as complete.
    """
    return agreed(_write_done(config, progress) if ranks.rank == 0 else True, device)


def _write_done(config: Config, progress: Progress) -> bool:
    steps, samples = progress.steps, progress.samples
    content = {
        "schema": DONE_SCHEMA, "attempt": config.attempt, "step": steps, "total_steps": steps, "samples": samples,
    }  # fmt: skip
    try:
        put(config.done, json.dumps(content).encode(), mode=0o644)
    except OSError as error:
        where = f"all {steps} steps are done, but {config.done} could not be written: {error.strerror}"
        warn(f"training: {where}; free space there and resume the run")
        return False
    return True
