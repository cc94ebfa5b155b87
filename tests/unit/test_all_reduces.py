"""The all-reduce of a message by its size: measured at the site, kept in the plan, the same for all attempts."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_measured import rows as measured_rows
from tests.unit.test_measured import run_file as run_file
from tests.unit.test_measured import run_that_measured
from tests.unit.test_measured import site_file as site_file
from tests.unit.verbs import Capsys, prints
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.shipped import ROOT
from torusrun.orchestrator.place.cost.by_size import GAIN, quicker
from torusrun.orchestrator.predict import measurements
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.plan.all_reduces import spans_of, words
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.run.plan.rates import Otherwise, backend_of, train_of
from torusrun.training.collectives.chunks import Span, at_size

TABLES = st.lists(
    st.tuples(st.integers(1, 10**9), st.floats(1, 1e7), st.floats(1, 1e7)), max_size=14, unique_by=lambda row: row[0]
)


@given(TABLES)
def test_the_choice_is_slower_than_the_library_at_no_measured_size(table: list[tuple[int, float, float]]) -> None:
    spans = quicker(table)
    for size_bytes, library_us, torus_us in table:
        assert {"flat": library_us, "torus": torus_us}[at_size(spans, size_bytes)] <= library_us
    for row, larger in pairwise(sorted(table)):
        if all(library_us >= GAIN * torus_us for _, library_us, torus_us in (row, larger)):
            between = (row[0] + larger[0]) // 2
            assert at_size(spans, between) == "torus", "it won at both sizes, and is not taken between them"


@given(TABLES, st.integers(0, 2 * 10**9))
def test_every_size_has_one_choice_and_others_than_measured_ones_take_no_risk(
    table: list[tuple[int, float, float]], size_bytes: int
) -> None:
    spans = quicker(table)
    assert bool(spans) == bool(table)
    assert all(a.from_bytes < b.from_bytes and a.all_reduce != b.all_reduce for a, b in pairwise(spans))
    if spans and at_size(spans, size_bytes) == "torus":
        sizes = sorted(row[0] for row in table)
        below, above = (max(s for s in sizes if s <= size_bytes), min((s for s in sizes if s >= size_bytes), default=0))
        assert at_size(spans, below) == "torus" and (not above or at_size(spans, above) == "torus")


def test_a_torus_that_wins_in_the_middle_is_taken_there() -> None:
    table = [(4096, 10.0, 90.0), (2**20, 100.0, 60.0), (2**22, 400.0, 300.0), (2**24, 1600.0, 1590.0)]
    assert quicker(table) == (Span(0, "flat"), Span(2**20, "torus"), Span(2**22 + 1, "flat"))
    assert quicker(table[:3]) == (Span(0, "flat"), Span(2**20, "torus")), "beyond the largest as at the largest"
    assert quicker(table[:2]) == (Span(0, "flat"),), "one time may be chance"
    assert quicker([(2**20, 100.0, 99.0), (2**21, 200.0, 199.0)]) == (Span(0, "flat"),), "so may 1 %"


def rows(wire: str = "fp32", **changes: Any) -> list[dict[str, Any]]:
    """A measurement in which the torus is quicker from 1 MiB on, as `python -m torusrun.training.measure` writes it."""
    head = {"t": 0.0, "attempt": 1, "event": "measured", "step": 0, "operation": "mean"}
    over = {"grid": [2, 2], "nodes": 2, "library": "gloo", "wire": wire}
    times = [(2**16, 1e-3, 2e-3), (2**20, 1e-2, 5e-3), (2**24, 0.16, 0.08)]
    both = [{"bytes": size_bytes, "library_s": library, "torus_s": torus} for size_bytes, library, torus in times]
    return [*measured_rows(), *({**head, **over, **each, **changes} for each in both)]


TAKEN = (Span(0, "flat"), Span(2**20, "torus"))


@pytest.fixture
def measured(tmp_path: Path, run_file: Path) -> Path:
    measurements.keep(str(run_file), run_that_measured(tmp_path, rows()), site=None, settings=[])
    return run_file


def test_a_run_on_the_measured_grid_takes_the_quicker_and_plan_says_so(measured: Path, capsys: Capsys) -> None:
    assert spans_of(plan(measured)) == TAKEN
    assert "all-reduce  torus over 2x2 from 1.0M bytes on, otherwise gloo's own" in prints(
        capsys, "plan", str(measured)
    )
    said = json.loads(prints(capsys, "plan", str(measured), "--json"))["all_reduce"]
    assert said.endswith("measured at this site on 2x2 on 2 nodes, gloo, fp32")


@pytest.mark.parametrize(
    "setting, said",
    [
        ("grid=4x1", "torus over 4x1, not compared with gloo's own"),
        ("train.sync.wire=bf16", "2x2 on 2 nodes, gloo, bf16 are not measured at this site"),
        ("train.sync.all_reduce=torus", "torus, as the run names it"),
    ],
)
def test_others_than_the_measured_take_the_torus_or_what_the_run_names(measured: Path, setting: str, said: str) -> None:
    other = plan(measured, settings=[setting])
    assert spans_of(other) == () and said in words(other)


def test_a_later_measurement_changes_no_run_that_exists(measured: Path, tmp_path: Path) -> None:
    """A resumed attempt reads the plan of its run, which has the measurement of that day: its sums keep their order."""
    kept, folder = plan(measured), RunFolder(tmp_path / "kept")
    folder.folder.mkdir()
    plan_files.write_first(folder, kept)
    slower = run_that_measured(tmp_path, rows(torus_s=1.0))
    measurements.keep(str(measured), slower, site=None, settings=[])
    assert spans_of(plan(measured)) == (Span(0, "flat"),)
    again: Plan = plan_files.read_first(folder, 1)
    assert spans_of(replace(again, chosen=kept.chosen)) == TAKEN


def test_measurements_of_other_wires_stay(measured: Path, tmp_path: Path) -> None:
    _, found = measurements.keep(str(measured), run_that_measured(tmp_path, rows("fp16")), site=None, settings=[])
    assert "the torus is at most 2.00 times as fast" in measurements.words(measured, found)
    assert sorted(plan(measured).site.measured.all_reduce) == [
        f"2x2 on 2 nodes, gloo, {wire}" for wire in ("fp16", "fp32")
    ]


@pytest.mark.parametrize(
    "damage", [{"torus_s": "much"}, {"library_s": 1e400}, {"bytes": 0}, {"grid": None}, {"library": "gloo\nnode: {}"}]
)
def test_a_damaged_row_is_named_and_nothing_written(
    run_file: Path, site_file: Path, tmp_path: Path, damage: dict[str, Any]
) -> None:
    damaged = run_that_measured(tmp_path, rows(**damage))
    with pytest.raises(UserError, match="a measured all-reduce must have its grid and its times"):
        measurements.keep(str(run_file), damaged, site=None, settings=[])
    assert not site_file.with_suffix(".measured").exists()


@pytest.mark.parametrize(("device", "library", "compiled"), [("auto", "nccl", True), ("cpu", "gloo", False)])
def test_a_training_on_the_cpus_of_nodes_with_gpus_uses_no_gpu(device: str, library: str, compiled: bool) -> None:
    made = plan(ROOT / "examples/digits.yaml", site="slurm", settings=[f"train.device={device}"])
    assert (backend_of(made), train_of(made, Otherwise()).compile) == (library, compiled)
