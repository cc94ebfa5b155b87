"""The training of one attempt on one rank: from the newest checkpoint to the last step, or to a stop."""

from __future__ import annotations

import time

from torusrun.training.checkpoint.manifest import name_of
from torusrun.training.checkpoint.writer import Writer
from torusrun.training.collectives import device as devices
from torusrun.training.config import Config, Ranks
from torusrun.training.learner import Learner
from torusrun.training.learner_saver import LearnerSaver, check_parts
from torusrun.training.meeting import rendezvous
from torusrun.training.parts import build_parts, check_alike, settle
from torusrun.training.reporting import start
from torusrun.training.reporting.exits import EXIT_DONE, EXIT_NO_CHECKPOINT, EXIT_STOPPED, StopRequest
from torusrun.training.reporting.reporter import Reporter, record_done


def run(config: Config, ranks: Ranks, stop: StopRequest, writer: Writer | None) -> int:
    """Train as one of `ranks`; returns the exit code, the same on every rank. Rank 0 has a `writer`.

    Raises ConfigError, before the ranks meet, for a model, data set, optimizer or schedule that cannot be built.
    """
    device = devices.prepare(config.train.device, ranks.local, config.train.precision)
    start.ended("device")
    parts = build_parts(config.train, device)  # before the ranks meet: every rank reports an error of a part
    check_parts(parts)
    start.ended("network and data")
    meeting = rendezvous.join(config, ranks, device)
    start.ended("meeting")
    stop.listen()
    check_alike(parts.data, device)
    settle(parts.optimizer, device)
    learner = Learner(config, ranks, device, parts)
    reporter = Reporter(config, ranks, learner)
    saver = LearnerSaver(config, learner, reporter, writer)
    start.ended("groups")
    resumed_from = saver.resume(meeting)
    start.ended("checkpoint")
    reporter.start(resumed_from)
    code = _train(config, ranks, learner, reporter, saver, stop)
    if code != EXIT_NO_CHECKPOINT:
        saver.end()
    reporter.end()
    learner.steps.end()
    rendezvous.leave()
    return code


def _train(
    config: Config, ranks: Ranks, learner: Learner, reporter: Reporter, saver: LearnerSaver, stop: StopRequest
) -> int:
    every = config.train.log_every_steps
    saver.begin()
    while not learner.finished:
        # This attempt or the next does the work that is due after a step.
        if learner.course.evaluates(learner.before, learner.progress):
            saver.evaluated(reporter.evaluation().model.accuracy)
        reporter.stepping()
        began_s = time.perf_counter()
        stopping = learner.step(stop.requested)
        reporter.timed(time.perf_counter() - began_s)
        if learner.progress.steps // every > learner.before.steps // every:
            reporter.step()
        if stopping or learner.finished:
            if not saver.save_last():
                return EXIT_NO_CHECKPOINT
        else:
            saver.after_step()
        if stopping and not learner.finished:
            reporter.stop("SIGTERM")
            return EXIT_STOPPED
    evaluation = reporter.evaluation()
    saver.evaluated(evaluation.model.accuracy)
    if not record_done(config, ranks, learner.device, learner.progress):
        return EXIT_NO_CHECKPOINT
    reporter.done(evaluation, name_of(learner.progress.steps))
    return EXIT_DONE
