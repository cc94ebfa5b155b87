"""Run folders as submitting and training leave them, written by the code that writes the real ones, without torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.json_files import write_json, write_text
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.job.start.prepare import prepare
from torusrun.orchestrator.place.placement.mapping import place
from torusrun.orchestrator.run.folder import index, ledger, provenance
from torusrun.orchestrator.run.folder.events import Ended, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.records import End, Meaning, RankEnd
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan.plan import plan as planned
from torusrun.orchestrator.schedulers import launchers
from torusrun.training.checkpoint.manifest import MANIFEST, compose, name_of
from torusrun.training.progress import Progress
from torusrun.training.reporting.metrics import Metrics

STEPS = 40
SITE = """scheduler: local
launcher: spawn
node: {{ranks: 4, interface: lo}}
python: {folder}/python
runs: {runs}
stop_before: 10s
"""

DONE = End(State.COMPLETED, "all 4 ranks ended well", cause=Cause.DONE)


def write_specs(folder: Path, runs: Path | None = None) -> Path:
    """A run file and its site, whose Python is a stub that ends at once, with its `runs` below the folder if not named.

    Returns the run file's path.
    """
    (folder / "python").write_text("#!/bin/sh\nexit 3\n")
    (folder / "python").chmod(0o755)
    (folder / "site.yaml").write_text(SITE.format(folder=folder, runs=runs or folder / "runs"))
    (folder / "run.yaml").write_text("name: made\nsite: ./site.yaml\ngrid: 2x2\ntime: 10m\ntrain: {}\n")
    return folder / "run.yaml"


def make(spec: Path, end: End, job: str = "999999999.1") -> RunFolder:
    """A run of one attempt that ended so, in the index."""
    plan = planned(spec)
    run, attempt = RunFolder(plan.folder), RunFolder(plan.folder).attempt(1)
    attempt.folder.mkdir(parents=True, mode=private.FOLDER)
    with index.announced(run):
        write_text(run.spec, plan.spec_text)
        write_json(run.provenance, provenance.gather(spec.parent)[0])
        write_json(run.plan, plan.as_json())
        write_json(attempt.plan, plan.as_json())
    _image(run)
    ledger.append(run.ledger, Submitting(1, name=plan.run_id))
    ledger.append(run.ledger, Submitted(1, job=job, scheduler="local"))
    placement = place(plan.grid, ["here"], 4)
    prepare(plan, run, attempt, placement, {}, launchers.named("spawn"))
    ledger.append(run.ledger, Started(1, job=job, hosts=("here",), grid=(2, 2)))
    for rank in range(4):
        start = {"rank": rank, "host": "here", "local_rank": rank, "pid": 1, "started_s": 1.5}
        write_json(attempt.rank_start(rank), start)
        RankEnd(rank, "here", rank, 2.5, exit_code=0, meaning=Meaning.DONE).write(attempt.rank_end(rank))
        write_text(attempt.rank_log(rank), f"a line of rank {rank}\nanother\n")
    write_text(attempt.script, "#!/usr/bin/env bash\n")
    write_text(attempt.stdout, "a line of the job\n")
    write_text(attempt.stderr, "")
    write_text(run.current, "1\n")
    write_text(attempt.alive, "", secret=True)
    write_text(attempt.pulse, "here\n")
    write_json(attempt.rendezvous, {"host": "here", "port": 1}, secret=True)
    _train(run, end.state is State.COMPLETED)
    if end.state is State.COMPLETED:
        write_json(attempt.done, {"schema": 1, "attempt": 1, "step": STEPS})
    end.write(attempt.end)
    ledger.append(run.ledger, Ended(1, state=end.state, reason=end.reason))
    return run


def _image(run: RunFolder) -> None:
    sif = run.folder.parent.parent / "made.sif"
    sif.write_bytes(b"an image")
    write_json(run.image, asdict(Image(str(sif), hashlib.sha256(b"an image").hexdigest(), "made")))


def _train(run: RunFolder, done: bool) -> None:
    metrics = Metrics(run.metrics, 1)
    metrics.write("start", step=0, total_steps=STEPS)
    for step in range(1, STEPS + 1):
        metrics.write("step", step=step, total_steps=STEPS, loss=1.0 / step, lr=0.1, images_per_s=800.0)
    if done:
        metrics.write("done", step=STEPS, accuracy=0.97, images_per_s=810.0)
    for step in (STEPS // 2, STEPS):
        checkpoint = run.checkpoints / name_of(step)
        checkpoint.mkdir(parents=True)
        state = b"weights" * 1000
        (checkpoint / "state.pt").write_bytes(state)
        (checkpoint / MANIFEST).write_text(json.dumps(compose(Progress(step, 64 * step), 1.0, 1, {"state.pt": state})))
