"""The run that every fault is tried on: a few seconds of training, a checkpoint every 25 steps."""

from __future__ import annotations

import math
from pathlib import Path

from tests.e2e.places import Place, ledger, metrics

IMAGES, BATCH, EPOCHS = 1437, 32, 10
LAST_STEP = math.ceil(EPOCHS * IMAGES / BATCH)
FIRST_STEP = 30  # after the first checkpoint

SPEC = """name: campaign
site: {site}
{layout}
time: 10m
train:
  epochs: {epochs}
  batch: {batch}
  optimizer: {{lr: 0.1}}
  checkpoint_every_steps: 25
  log_every_steps: 1
"""


def submit(place: Place, site: str, settings: list[str]) -> Path:
    """Submit the run with these changes ('time=30s'); its folder."""
    place.put("campaign.yaml", SPEC.format(site=site, layout=place.layout, epochs=EPOCHS, batch=BATCH))
    changes = [word for setting in settings for word in ("--set", setting)]
    said = place.torusrun("submit", "campaign.yaml", *changes, timeout_s=60)
    assert said.returncode == 0, f"submit failed: {said.stderr.strip()}"
    return Path(place.view(said.stdout.split()[0])["folder"])


def undisturbed(place: Place) -> Path:
    """A run to compare with."""
    run = submit(place, "site.yaml", [])
    said = place.torusrun("watch", run.name, timeout_s=240)
    assert said.returncode == 0, f"the undisturbed run failed: {said.stdout}{said.stderr}"
    assert metrics(run, "done")[-1]["step"] == LAST_STEP
    return run


def seconds_to(run: Path, step: int) -> float:
    """How long after its supervisor's beginning a run reached this step."""
    (begun,) = ledger(run, "started")
    reached = next(row for row in metrics(run, "step") if row["step"] >= step)
    # Both are seconds of time.time(), on the same machine.
    return float(reached["t"] - begun["t"])
