"""The run for every fault: a few seconds of training, a checkpoint every 25 steps."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.places import LAST_STEP, Place, metrics

FIRST_STEP = 30  # after the first checkpoint


def undisturbed(place: Place) -> Path:
    """A run to compare with."""
    run = place.submit()
    said = place.torusrun("watch", run.name, timeout_s=600)
    assert said.returncode == 0, f"the undisturbed run failed: {said.stdout}{said.stderr}"
    assert metrics(run, "done")[-1]["step"] == LAST_STEP
    return run
