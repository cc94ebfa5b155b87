"""A grid of three levels, and one that the job chooses, on this machine; tests/lab has several nodes."""

import json
import re
from pathlib import Path

from tests.e2e.places import Local, ledger, metrics

TRAIN = (
    "name: levels\nsite: ./site.yaml\ngrid: {grid}\ntrain: {{epochs: 1, schedule: {{warmup_epochs: 0}}, batch: 512}}\n"
)
COMMAND = "name: told\nsite: ./site.yaml\ngrid: {grid}\ncode: none\ncommand: [sh, -c, 'echo \"grid $TORUSRUN_GRID\"']\n"


def test_a_training_runs_on_three_levels(local: Local) -> None:
    run = submitted(local, TRAIN, "2x1x2", [2, 1, 2])
    told = json.loads((run / "attempts/1/config.json").read_text())["grid"]
    assert metrics(run, "start")[0]["grid"] == told == [2, 1, 2]


def test_a_command_on_one_node_gets_a_grid_of_one_level(local: Local) -> None:
    run = submitted(local, COMMAND, "auto", [4])
    assert local.torusrun("logs", run.name, "--all").stdout.count("grid 4\n") == 4


def submitted(local: Local, spec: str, grid: str, levels: list[int]) -> Path:
    """A run of four ranks to its end, on this grid."""
    local.put("run.yaml", spec.format(grid=grid))
    said = local.succeeds("submit", "run.yaml", "--wait")
    view = local.view(said.stdout.split()[0])
    run = Path(view["folder"])
    assert (view["state"], view["grid"], view["ranks"]) == ("COMPLETED", levels, 4)
    assert ledger(run, "started")[0]["grid"] == levels
    assert re.search(rf"^grid +{' x '.join(map(str, levels))}$", said.stdout, re.MULTILINE)
    return run
