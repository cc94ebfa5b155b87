"""A grid of three levels on this machine; tests/lab has several nodes, and grids that the job chooses."""

import json
from pathlib import Path

from tests.e2e.places import Local, ledger, metrics

RUN = "name: levels\nsite: site.yaml\ngrid: 2x1x2\ntrain: {epochs: 1, schedule: {warmup_epochs: 0}, batch: 512}\n"


def test_a_training_runs_on_three_levels(local: Local) -> None:
    local.put("run.yaml", RUN)
    said = local.succeeds("submit", "run.yaml", "--wait")
    view = local.view(said.stdout.split()[0])
    run, levels = Path(view["folder"]), [2, 1, 2]
    assert (view["state"], view["grid"], view["ranks"]) == ("COMPLETED", levels, 4)
    told = json.loads((run / "attempts/1/config.json").read_text())["grid"]
    assert metrics(run, "start")[0]["grid"] == ledger(run, "started")[0]["grid"] == told == levels
    assert "\ngrid " in said.stdout and " 2 x 1 x 2\n" in said.stdout
