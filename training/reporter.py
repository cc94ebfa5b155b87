"""What rank 0 tells the world: the metrics' events, and the one line when the last checkpoint fails."""

from __future__ import annotations

import sys

import torch

from training import device as devices
from training.checkpoint.manifest import Checkpoint
from training.config import Config
from training.evaluate import Evaluation
from training.learner import Learner
from training.meter import Meter
from training.metrics import Metrics
from training.ranks import Ranks


class Reporter:
    """Writes the events of one attempt; on every rank but 0 it is silent."""

    def __init__(self, config: Config, ranks: Ranks, learner: Learner) -> None:
        self._config, self._ranks, self._learner = config, ranks, learner
        self._metrics = Metrics(config.metrics if ranks.rank == 0 else None, config.attempt)

    def start(self, resumed_from: str | None, device: torch.device) -> None:
        self._write(
            "start",
            resumed_from=resumed_from,
            world=self._ranks.world,
            grid=list(self._config.grid),
            device=device.type,
            backend=devices.backend(device),
            params=self._learner.parameters,
            total_steps=self._learner.total_steps,
            total_samples=self._learner.total_samples,
            torch=torch.__version__.split("+")[0],
        )

    def step(self, meter: Meter) -> None:
        learner = self._learner
        self._write(
            "step",
            total_steps=learner.total_steps,
            total_samples=learner.total_samples,
            epoch=round(learner.epochs, 4),
            loss=round(learner.mean_loss, 5),
            lr=round(learner.last_rate, 6),
            images_per_s=meter.recent_images_per_s(),
            **({} if learner.loss_scale is None else {"loss_scale": learner.loss_scale}),
        )

    def evaluation(self, evaluation: Evaluation) -> None:
        self._write("eval", epoch=float(int(self._learner.epochs)), **evaluation.row())

    def checkpoint(self, name: str, spent_s: float) -> None:
        self._write("checkpoint", path=name, seconds=round(spent_s, 4))

    def failed_checkpoint(self, error: OSError) -> None:
        self._write("checkpoint_failed", error=error.strerror or str(error))

    def lost_checkpoint(self, error: OSError, newest: Checkpoint | None) -> None:
        """The last checkpoint of the attempt failed: say so where the user looks."""
        step, folder = self._learner.progress.steps, self._config.checkpoints
        where = f"the checkpoint of step {step} could not be written to {folder}"
        newest_name = newest.name if newest else "none"
        todo = f"newest complete checkpoint: {newest_name}; free space there and resume the run"
        print(f"training: {where}: {error.strerror or error}; {todo}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        self._write("stop", reason="SIGTERM")

    def done(self, evaluation: Evaluation, meter: Meter, checkpoint: str) -> None:
        self._write("done", **evaluation.row(), images_per_s=meter.images_per_s(), checkpoint=checkpoint)

    def _write(self, event: str, **values: object) -> None:
        progress = self._learner.progress
        self._metrics.write(event, step=progress.steps, samples=progress.samples, **values)
