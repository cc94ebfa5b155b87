"""A forecast of any program from its finished runs: by their sizes, their spread, and what was not measured."""

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.forecast.by_size import MeasuredRun, forecast
from torusrun.orchestrator.run.folder import index, shown_plan
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.command_runs import forecast_at_submit
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.state.record import read_record
from torusrun.orchestrator.show.listing import listing
from torusrun.orchestrator.show.screen.printed import words
from torusrun.orchestrator.sweeps.plans import SweepOptions, plan_sweep
from torusrun.orchestrator.sweeps.preview import cost
from torusrun.training.reporting.metrics import Metrics

Said = pytest.CaptureFixture[str]
STEP_S = 0.25


def runs(*sizes: tuple[int, float], total: int | None = 1000, spread: float = 0.01) -> list[MeasuredRun]:
    return [MeasuredRun(f"r{number}", *size, spread, total) for number, size in enumerate(sizes)]


SIZES = st.lists(st.integers(1, 4096), min_size=3, max_size=3, unique=True).map(sorted)
PARTS = st.floats(1e-3, 10), st.floats(0, 10)


@given(SIZES, *PARTS)
def test_a_step_with_a_part_for_each_rank_is_what_lies_between(sizes: list[int], fixed_s: float, each_s: float) -> None:
    few, asked, many = sizes
    found = forecast(runs(*((ranks, fixed_s + each_s * ranks) for ranks in (few, many))), asked)
    assert found.step_s == pytest.approx(fixed_s + each_s * asked)
    assert found.step_between_s.holds(found.step_s) and f"{asked:,} ranks were not measured" in found.doubts[1]


@given(SIZES, *PARTS)
def test_a_step_that_shares_its_work_falls_with_the_ranks(sizes: list[int], fixed_s: float, work_s: float) -> None:
    few, asked, many = sizes
    found = forecast(runs(*((ranks, fixed_s + work_s / ranks) for ranks in (few, many))), asked)
    assert found.step_between_s.low / 1.0001 <= fixed_s + work_s / asked <= found.step_between_s.high * 1.0001
    assert work_s < 1e-6 or found.step_s == pytest.approx(fixed_s + work_s / asked, rel=1e-6)


@given(st.integers(1, 64), st.floats(-1, 0.5), st.sampled_from([2, 4]))
def test_beyond_the_measured_sizes_the_interval_holds_what_goes_on_alike_and_says_so(
    few: int, power: float, times: int
) -> None:
    """Steps that are a power of the ranks, asked at twice or four times the larger size."""
    found = forecast(runs(*((ranks, float(ranks) ** power) for ranks in (few, 2 * few))), 2 * few * times)
    assert found.step_between_s.holds(float(2 * few * times) ** power)
    assert "this is extrapolated" in found.doubts[1]


@pytest.mark.parametrize(
    ("sizes", "ranks", "true_s"),
    [
        (((63, 1.0), (64, 20.0)), 4096, 20.0),  # a wild run beside another size
        (((1023, 1.0), (1024, 1.3)), 1, 1.0),
        (((2, 1.0), (4, 2.0)), 1, 0.5),  # it grows with the ranks, and falls with them
        (((4, 0.2), (8, 0.1)), 1, 0.8),
    ],
)
def test_far_from_the_measured_sizes_the_forecast_is_a_number(
    sizes: tuple[tuple[int, float], ...], ranks: int, true_s: float
) -> None:
    assert forecast(runs(*sizes), ranks).step_between_s.holds(true_s)


def test_one_size_says_little_about_another() -> None:
    own, more = (forecast(runs((4, 1.0)), ranks) for ranks in (4, 8))
    assert own.step_between_s.high / own.step_between_s.low < 1.12 and len(own.doubts) == 1
    assert more.step_between_s.low < 0.5 and more.step_between_s.high > 1.2
    assert "outside what was measured, 4 alone" in more.doubts[1]


def test_the_interval_is_the_spread_of_the_runs() -> None:
    """Logarithms 0 and 0.1: deviation 0.0707, t of one degree of freedom 6.314, times the root of 3/2."""
    from math import exp

    found = forecast(runs((4, 1.0), (4, exp(0.1))), 4)
    assert found.step_between_s.high / found.step_s == pytest.approx(exp(6.314 * 0.1 / 2**0.5 * 1.5**0.5))
    many = forecast(runs(*((4, 1.0 + 0.01 * (number % 2)) for number in range(10))), 4)
    assert many.step_between_s.high / many.step_s < 1.02 and "from run to run" in many.doubts[0]
    within = forecast(runs((4, 1.0), spread=0.2), 4)
    assert within.step_between_s.high > 1.3 and "no size was measured twice" in within.doubts[0]


def test_the_number_of_steps_goes_by_the_ranks_too_or_is_said_to_be_unknown() -> None:
    """An epoch is shared among the ranks: twice as many take half the steps."""
    shared = [MeasuredRun("a", 2, 1.0, 0.0, 800), MeasuredRun("b", 8, 1.0, 0.0, 200)]
    assert forecast(shared, 4).steps == 400 and forecast(shared, 4).total_s == pytest.approx(400)
    unknown = forecast(runs((4, 1.0), total=None), 4)
    assert unknown.total_s is None and "`total_steps`" in unknown.doubts[-1] and "metrics.pattern" in unknown.doubts[-1]


@pytest.fixture
def run_file(home: Path, tmp_path: Path) -> Path:
    (tmp_path / "site.yaml").write_text(
        f"scheduler: local\nlauncher: spawn\nnode: {{ranks: 4}}\nruns: {tmp_path}/runs\n"
    )
    (tmp_path / "run.yaml").write_text("name: prog\nsite: ./site.yaml\ncode: none\ncommand: [sleep, '60']\n")
    return tmp_path / "run.yaml"


def finished(
    run_file: Path,
    *,
    ranks: int = 4,
    step_s: float = STEP_S,
    steps: int = 20,
    total: int | None = 100,
    end: State | None = State.CANCELLED,
    settings: Sequence[str] = (),
) -> RunFolder:
    """A run of the command as submitting and its job leave it: its plan, its metrics and its end."""
    planned = plan(run_file, settings=[f"ranks_per_node={ranks}", *settings])
    run = RunFolder(planned.folder)
    run.attempt(1).folder.mkdir(parents=True, mode=0o700)
    with index.announced(run):
        run.plan.write_text(json.dumps(planned.as_json()))
    written = Metrics(run.metrics, 1)
    for step in range(1, steps + 1):
        late_s = 5.0 if step > 1 else 0.0  # the first step compiles
        values = {"step": step, "loss": 1 / step, **({"total_steps": total} if total else {})}
        written.write("step", **{**values, "t": 1000.0 + late_s + step * step_s})
    if end:
        End(end, "it ended").write(run.attempt(1).end)
    return run


def predicted(said: Said, run_file: Path, *settings: str) -> Any:
    assert main(["predict", str(run_file), *(word for each in settings for word in ("--set", each)), "--json"]) == 0
    return json.loads(said.readouterr().out)


def test_finished_runs_of_the_same_command_give_a_forecast_in_every_verb(run_file: Path, capsys: Said) -> None:
    assert main(["predict", str(run_file)]) == 2
    assert "submit it at some sizes first" in capsys.readouterr().err
    runs = [finished(run_file), finished(run_file, ranks=2, step_s=STEP_S / 2)]
    found = predicted(capsys, run_file)
    assert (found["step_s"], found["steps"]) == (pytest.approx(STEP_S), 100)
    assert found["total_s"] == pytest.approx(25.0) and [run["run"] for run in found["runs"]] == [r.run_id for r in runs]
    assert predicted(capsys, run_file, "ranks_per_node=3")["step_s"] == pytest.approx(0.75 * STEP_S)
    assert main(["plan", str(run_file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prediction"] == found
    for verb in ("plan", "predict"):
        assert main([verb, str(run_file)]) == 0
        said = capsys.readouterr().out
        assert "forecast 25.0 s [24.0, 26.0]: 100 steps of 250 ms" in said
        assert re.search(rf"^cost +{25 / 3600:.4g} node-hours$", said, re.MULTILINE)
    kept = forecast_at_submit(plan(run_file))
    assert kept and (kept.total_s, kept.steps, kept.grid) == (pytest.approx(25.0), 100, (4,))


def test_a_sweep_of_a_measured_command_costs_what_its_runs_took(run_file: Path) -> None:
    asked = SweepOptions(("time=1h,2h",), 1)
    unknown = cost(plan_sweep(run_file, site=None, settings=[], asked=asked))
    assert unknown.wall_s == 3 * 3600 and "submit it" in unknown.unknown
    finished(run_file)
    known = cost(plan_sweep(run_file, site=None, settings=[], asked=asked))
    assert known.wall_s == pytest.approx(2 * 100 * STEP_S) and not known.unknown


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"end": State.COMPLETED}, True),
        ({"end": State.FAILED}, True),
        ({"end": None}, False),  # it is at work
        ({"steps": 5}, False),
        ({"settings": ["command=[sleep, '61']"]}, False),
        ({"settings": ["env.BATCH=8"]}, False),
        ({"settings": ["code=."]}, False),  # the same words in another folder are another program
        ({"settings": ["name=other"]}, True),
        ({"settings": ["time=2h"]}, True),
    ],
)
def test_which_runs_count(run_file: Path, capsys: Said, changes: dict[str, Any], counts: bool) -> None:
    finished(run_file, **changes)
    assert (main(["predict", str(run_file)]) == 0) is counts


def test_a_completed_run_says_how_many_steps_it_takes(run_file: Path, capsys: Said) -> None:
    finished(run_file, total=None)
    assert predicted(capsys, run_file)["total_s"] is None
    assert main(["predict", str(run_file)]) == 0 and "report `total_steps` beside `step`" in capsys.readouterr().out
    finished(run_file, total=None, end=State.COMPLETED)
    assert predicted(capsys, run_file)["steps"] == 20


def test_steps_that_are_read_from_a_log_at_once_count_by_the_last_of_them(run_file: Path, capsys: Said) -> None:
    """Ten steps a second, of which a log is read once a second."""
    run = finished(run_file, steps=1, end=State.CANCELLED)
    run.metrics.unlink()
    written = Metrics(run.metrics, 1)
    for step in range(1, 61):
        read_s = -(-step // 10)
        written.write("step", step=step, total_steps=60, t=1000.0 + read_s + 1e-3 * (step % 10))
    found = predicted(capsys, run_file)
    assert found["step_s"] == pytest.approx(0.1, rel=0.02)
    low, high = found["intervals"]["step_s"]
    assert low < 0.1 < high and high / low < 1.3


def test_a_run_that_is_not_over_shows_its_forecast(run_file: Path, capsys: Said) -> None:
    finished(run_file)
    run = finished(run_file, end=None)
    kept = forecast_at_submit(plan(run_file))
    assert kept
    run.provenance.write_text(json.dumps({shown_plan.FORECAST: kept.__dict__}))
    record = read_record(run)
    view = record.view(record.status(None, time.time()), time.time())
    assert not view.state.over and "forecast 25.0 s [24.0, 26.0]" in words(view, "")
    assert any("forecast 25.0 s [24.0, 26.0]" in line for line in listing([view]).lines())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["predict", "--gpu", "h100"], "--gpu: torusrun does not know what a command computes"),
        (["calibrate"], "a command is measured by its finished runs"),
    ],
)
def test_options_that_do_not_fit_a_command_are_said_in_one_line(
    run_file: Path, capsys: Said, argv: list[str], message: str
) -> None:
    assert main([argv[0], str(run_file), *argv[1:]]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and not index.runs(), "no job has begun"
