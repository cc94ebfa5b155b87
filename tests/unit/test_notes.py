"""What a plan does that its user may not expect: `plan`, `submit` and a dry run say it."""

import os
from pathlib import Path

import pytest

from torusrun.orchestrator.cli.api import dry_run
from torusrun.orchestrator.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.yaml"
NOTE = "the run ends in its warm-up, at lr 0.05: train.schedule.warmup_epochs is 2, and train.epochs is 1"


@pytest.mark.parametrize(
    ("settings", "notes"),
    [
        (["train.epochs=1"], [NOTE]),
        (["train.epochs=2"], []),
        (["train.epochs=1", "train.schedule.warmup_epochs=0"], []),
        (["train={epochs: 1}"], []),
        (["train={epochs: 1, phases: [{until: 1, lr: 0.1}]}"], []),
        (["train={epochs: 1, recipe: facebook-1h}"], []),
    ],
)
def test_the_example_trains_one_epoch(
    settings: list[str], notes: list[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "sbatch").touch(0o755)  # else a note says that it is missing
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    assert dry_run(EXAMPLE, site="slurm", settings=settings).notes == notes


def test_plan_shows_the_note(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(EXAMPLE), "--set", "train.epochs=1"]) == 0
    assert f"\nnote        {NOTE}\n" in capsys.readouterr().out
