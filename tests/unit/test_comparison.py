"""Two runs beside each other: what is equal, where they differ first and most, and what cannot be compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.unit.run_folders import DONE, STEPS, make, write_specs
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.show.origin import compare
from torusrun.training.checkpoint.manifest import MANIFEST, compose, name_of
from torusrun.training.progress import Progress
from torusrun.training.reporting.metrics import Metrics

LAST = name_of(STEPS)


@pytest.fixture
def two(home: Path) -> tuple[RunFolder, RunFolder]:
    spec, end = write_specs(home), DONE
    return make(spec, end), make(spec, end)


def repeat(run: RunFolder, step: int, loss: float) -> None:
    """A later attempt computes a step again."""
    Metrics(run.metrics, 2).write("step", step=step, loss=loss)


def other_weights(run: RunFolder) -> None:
    state, folder = b"others" * 1000, run.checkpoints / LAST
    (folder / "state.pt").write_bytes(state)
    (folder / MANIFEST).write_text(json.dumps(compose(Progress(STEPS, 64 * STEPS), 1.0, 1, {"state.pt": state})))


def test_equal_numbers_and_weights_are_bit_identical(two: tuple[RunFolder, RunFolder]) -> None:
    found = compare(*two)
    assert found.identical and found.steps == STEPS and not found.first
    equal = f"equal loss and accuracy at {STEPS} common steps"
    assert found.words == f"bit-identical: {equal}, equal weights in {LAST}, by SHA-256"


def test_the_first_and_the_largest_difference_are_named(two: tuple[RunFolder, RunFolder]) -> None:
    repeat(two[1], 10, 0.1001)
    repeat(two[1], 20, 0.1)
    other_weights(two[1])
    found = compare(*two)
    assert not found.identical and found.first and found.largest
    assert (found.first.step, found.largest.step, found.largest.relative) == (10, 20, 0.5)
    assert found.words == (
        f"loss and accuracy at {STEPS} common steps differ from step 10 on, most at step 20 (loss, by 0.5), "
        f"other weights in {LAST}, by SHA-256"
    )


def test_a_number_that_is_not_finite_is_the_largest_difference(two: tuple[RunFolder, RunFolder]) -> None:
    repeat(two[0], 20, 0.1)
    repeat(two[0], 30, float("nan"))
    assert "most at step 30 (loss, one is not finite)" in compare(*two).words
    repeat(two[1], 30, float("nan"))
    assert "most at step 20" in compare(*two).words, "both are not finite: that is equal"


def test_equal_losses_without_a_common_checkpoint_are_not_called_identical(two: tuple[RunFolder, RunFolder]) -> None:
    shutil.rmtree(two[0].checkpoints)
    found = compare(*two)
    assert not found.identical and found.words.endswith("common steps, no checkpoint in common")


def test_an_incomplete_checkpoint_is_passed_over(two: tuple[RunFolder, RunFolder]) -> None:
    (two[1].checkpoints / LAST / MANIFEST).unlink()
    assert compare(*two).checkpoint == name_of(STEPS // 2)


def test_runs_without_anything_in_common(two: tuple[RunFolder, RunFolder]) -> None:
    two[0].metrics.unlink()
    shutil.rmtree(two[0].checkpoints)
    assert compare(*two).words == "nothing can be compared: they have no step and no checkpoint in common"


def test_another_grid_explains_a_difference(two: tuple[RunFolder, RunFolder]) -> None:
    repeat(two[1], 10, 0.1001)
    ledger.append(two[1].ledger, Started(2, job="2", hosts=("here",), grid=(4, 1)))
    assert compare(*two).words.endswith("on other grids (2x2 and 4x1), which sum in another order")


def test_the_verb_prints_the_comparison(two: tuple[RunFolder, RunFolder], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", two[0].run_id, "--compare", two[1].run_id]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith(f"{two[1].run_id}: bit-identical: equal loss")
    repeat(two[1], 10, float("nan"))
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == [two[0].run_id, two[1].run_id] and not found["identical"]
    assert found["largest"] == {"step": 10, "name": "loss", "values": [0.1, None], "relative": None}
