"""The file that says that a training is complete: there with the last step, and only then."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from training_runs import TINY, TINY_STEPS, config, finish, launched

MEASURE = ["sh", "-c", f"shift 3; exec {sys.executable} -m training.measure $1", "sh"]


def done_of(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(document["done"]).read_text())
    return found


def test_it_is_there_after_the_last_step_for_its_owner_only(tmp_path: Path) -> None:
    document = config(tmp_path, (2, 1), **TINY)
    finish(document)
    assert done_of(document) == {"schema": 1, "attempt": 1, "step": TINY_STEPS, "total_steps": TINY_STEPS}
    assert stat.S_IMODE(Path(document["done"]).stat().st_mode) == 0o600
    again = config(tmp_path, (2, 1), attempt=2, **TINY)
    finish(again)
    assert done_of(again)["attempt"] == 2, "an attempt that finds all steps done is complete as well"
    left = sorted(path.name for path in Path(document["done"]).parent.iterdir())
    assert left == ["done.json"], f"nothing half-written may stay: {left}"


def test_a_stopped_training_is_not_done(tmp_path: Path) -> None:
    document = config(tmp_path, **TINY)
    with launched(document) as launch:
        launch.wait_for_step(2)
        launch.ranks[0].terminate()
        assert launch.codes() == [75]
    assert not Path(document["done"]).exists()


def test_a_measurement_is_done_after_its_one_step(tmp_path: Path) -> None:
    document = config(tmp_path)
    launch = finish(document, *MEASURE)
    assert done_of(document) == {"schema": 1, "attempt": 1, "step": 1, "total_steps": 1}
    assert launch.events()[-1]["event"] == "done"


@pytest.mark.parametrize("program", [[], MEASURE], ids=["train", "measure"])
def test_all_ranks_say_that_it_could_not_be_written(tmp_path: Path, program: list[str]) -> None:
    document = {**config(tmp_path, (2, 1), **TINY), "done": str(tmp_path / "missing" / "done.json")}
    with launched(document, *program) as launch:
        codes = launch.codes()
    assert codes == [74, 74], f"{codes}: {launch.stderr_text}"
    told = [line for line in launch.stderr_text.splitlines() if line.startswith("training:")]
    assert len(told) == 1 and "No such file or directory" in told[0] and "resume" in told[0], launch.stderr_text
    assert not launch.events("done"), "metrics must not claim what the file does not"
