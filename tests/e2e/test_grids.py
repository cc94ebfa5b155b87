"""A grid of three levels, and one that the job chooses, on this machine; tests/lab has several nodes."""

import json
import re

import pytest

from tests.e2e.places import Local, ledger, metrics

TRAIN = (
    "name: levels\nsite: ./site.yaml\ngrid: {grid}\ntrain: {{epochs: 1, schedule: {{warmup_epochs: 0}}, batch: 512}}\n"
)
COMMAND = "name: told\nsite: ./site.yaml\ncode: none\ncommand: [sh, -c, 'echo \"grid $TORUSRUN_GRID\"']\n"


@pytest.mark.parametrize(("grid", "levels"), [("2x1x2", [2, 1, 2]), ("auto", [4, 1])])
def test_a_training_runs_on_every_number_of_levels(local: Local, grid: str, levels: list[int]) -> None:
    local.put("run.yaml", TRAIN.format(grid=grid))
    said = local.torusrun("submit", "run.yaml", "--wait")
    assert said.returncode == 0, said.stdout + said.stderr
    view = local.view(said.stdout.split()[0])
    run = local.folder / "runs" / view["run"]
    assert (view["state"], view["grid"], view["ranks"]) == ("COMPLETED", levels, 4)
    assert metrics(run, "start")[0]["grid"] == ledger(run, "started")[0]["grid"] == levels
    assert json.loads((run / "attempts/1/config.json").read_text())["grid"] == levels
    assert re.search(rf"^grid +{' x '.join(map(str, levels))}$", said.stdout, re.MULTILINE)


def test_a_command_is_told_of_all_levels(local: Local) -> None:
    local.put("run.yaml", COMMAND)
    said = local.torusrun("submit", "run.yaml", "--set", "grid=2x1x2", "--wait")
    assert said.returncode == 0, said.stdout + said.stderr
    logs = local.torusrun("logs", said.stdout.split()[0], "--all").stdout
    assert logs.count("grid 2x1x2") == 4
