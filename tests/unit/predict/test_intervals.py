"""Stragglers and intervals: each number against a known value, and what widens a forecast."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.published import model as published
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.forecast import doubts
from torusrun.orchestrator.forecast.device import Device, device
from torusrun.orchestrator.forecast.interval import Doubt, Interval, around, middle
from torusrun.orchestrator.forecast.step import expected_maximum, largest_ranks, ready_s, resnet50, step, stragglers

ROOT = Path(__file__).resolve().parents[3]
DIGITS = str(ROOT / "examples" / "digits.yaml")
IMAGENET = ["--site", "slurm-v100", "--workload", "resnet50", "--set", "train.batch={}", "--set", "nodes={}"]

Said = pytest.CaptureFixture[str]


def answer(said: Said, *argv: str) -> Any:
    assert main([*argv, "--json"]) == 0
    return json.loads(said.readouterr().out)


def of_run(said: Said, batch: int, nodes: int, *more: str) -> Any:
    """The forecast of ResNet-50 on so many nodes of 4 GPUs."""
    return answer(said, "predict", DIGITS, *(word.format(value) for word, value in zip(
        IMAGENET, [0, 0, 0, 0, 0, batch, 0, nodes], strict=True)), "--set", f"grid={4 * nodes}x1", *more)  # fmt: skip


# Known values of order statistics (Teichroew 1956, Annals of Mathematical Statistics 27, table I; from memory).
@pytest.mark.parametrize(
    ("ranks", "expected"), [(1, 0.0), (2, 0.56419), (3, 0.84628), (10, 1.53875), (20, 1.86748), (100, 2.50759)]
)
def test_the_expected_maximum_of_normal_numbers(ranks: int, expected: float) -> None:
    assert expected_maximum(ranks) == pytest.approx(expected, abs=2e-5)


@given(st.integers(2, 10_000_000))
def test_more_ranks_wait_longer_and_never_more_than_the_known_bound(ranks: int) -> None:
    from math import log, sqrt

    assert expected_maximum(ranks - 1) < expected_maximum(ranks) <= sqrt(2 * log(ranks)) + 1e-9


def test_a_baseline_of_the_same_size_adds_no_wait_and_a_larger_one_takes_some_away() -> None:
    assert stragglers(64, 64).wait_s(0.1) == 0.0
    assert stragglers(8, 64).wait_s(0.1) < 0.0 < stragglers(512, 64).wait_s(0.1)
    assert stragglers(64, 1, sigma=0.0).wait_s(0.1) == 0.0
    few = stragglers(1, 16, sigma=2.0)
    assert few.wait_s(0.1) == pytest.approx(0.1 / (1 + 2.0 * expected_maximum(16)) - 0.1), "compute without any wait"
    assert -0.1 < few.wait_between(0.1).low <= few.wait_s(0.1) <= few.wait_between(0.1).high < 0.0
    assert stragglers(64, 1, sigma=0.02).wait_s(0.1) == pytest.approx(0.02 * 0.1 * expected_maximum(64))


def test_beyond_the_largest_known_cluster_the_upper_bound_alone_grows_faster() -> None:
    largest = largest_ranks()
    known, beyond = stragglers(largest, 1), stragglers(10 * largest, 1)
    ratios = [found.wait_between(1.0).high / found.wait_s(1.0) for found in (known, beyond)]
    assert ratios[0] == pytest.approx(1.54) and ratios[1] > 2.1
    lows = [found.wait_between(1.0).low / found.wait_s(1.0) for found in (known, beyond)]
    assert lows[0] == pytest.approx(lows[1])


def test_independent_doubts_add_up_in_squares_upwards_and_downwards_apart() -> None:
    found = around(10.0, [Doubt("a", 3.0, 0.0), Doubt("b", 4.0, 1.0)])
    assert found == Interval(5.0, 11.0)
    assert around(1.0, [Doubt("a", 7.0, 0.0)]).low > 0, "a time is never 0"
    assert around(10.0, []) == Interval(10.0, 10.0)
    assert Interval(2.0, 4.0).rate_of(8.0) == Interval(2.0, 4.0)


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=30))
def test_the_next_value_is_expected_around_the_middle_of_the_known(values: list[float]) -> None:
    found = published.of_next(values)
    assert found.low <= middle(values) * 1.0001 and middle(values) <= found.high * 1.0001
    assert published.of_next([2 * value for value in values]).high == pytest.approx(2 * found.high)


def test_students_t_gives_the_interval_of_a_text_book() -> None:
    """Logarithms 0, 1, 2: mean 1, deviation 1, t with 2 degrees of freedom 2.920, times the root of 4/3."""
    from math import e, log

    found = published.of_next([1.0, e, e * e])
    assert log(found.high) - 1 == pytest.approx(2.920 * (4 / 3) ** 0.5)
    assert 1 - log(found.low) == pytest.approx(2.920 * (4 / 3) ** 0.5)


def test_the_constants_are_what_all_published_rows_imply() -> None:
    """`data/doubts.yaml` holds them, because a forecast must not compute all rows first."""
    compared = published.comparable()
    launched, replayed = (published.spread(compared, kind) for kind in (False, True))
    rates = published.of_next(published.compute_factors(compared, launched[0]))
    found = {
        "sigma": launched[0],
        "sigma_high_factor": launched[1].high / launched[0],
        "sigma_replayed": replayed[0],
        "sigma_replayed_low_factor": replayed[1].low / replayed[0],
        "sigma_replayed_high_factor": replayed[1].high / replayed[0],
        "other_program_low": rates.low,
        "other_program_high": rates.high,
    }
    assert {name: doubts.number(name) for name in found} == pytest.approx(found, rel=0.01), "edit data/doubts.yaml"
    batches = [one.batch for one in compared.values()]
    assert doubts.number("smallest_batch") == min(batches) and doubts.number("largest_batch") >= max(batches)


def test_links_that_are_doubtful_expose_more_and_less_of_the_same_plan() -> None:
    cost = {"links_factor": doubts.links_factor()}
    one = step(device("v100-16gb"), 8, lambda size: 1e-4 + size / 5e9, **cost)
    low, high = one.exposed_between_s
    assert 0 < low < one.exposed_s < high
    assert one.exposed_between_s != step(device("v100-16gb"), 8, lambda size: 1e-4 + size / 5e9).exposed_between_s


def test_every_number_of_a_forecast_has_an_interval_that_contains_it(home: Path, capsys: Said) -> None:
    found = of_run(capsys, 2048, 16)
    assert {"step_s", "exposed_s", "stragglers_s", "images_per_s", "total_s", "node_hours", "to_target_s"} <= {
        *found["intervals"]
    }
    for name, (low, high) in found["intervals"].items():
        assert low <= found[name] <= high, name
    parts = ("forward_s", "backward_s", "fixed_s", "stragglers_s", "exposed_s", "norms_s")
    assert sum(found[part] for part in parts) == pytest.approx(found["step_s"])
    assert "with another program" in found["doubts"][0]["why"]


def test_a_measured_rate_makes_the_interval_narrow(home: Path, capsys: Said) -> None:
    published_low, published_high = of_run(capsys, 2048, 16)["intervals"]["step_s"]
    low, high = of_run(capsys, 2048, 16, "--images-per-s", "800@32")["intervals"]["step_s"]
    assert published_high / published_low > 2 > 1.3 > high / low


def test_intervals_widen_beyond_what_is_published_and_say_why(home: Path, capsys: Said) -> None:
    def width(found: Any) -> float:
        return float(found["intervals"]["step_s"][1] / found["intervals"]["step_s"][0])

    rate = ("--images-per-s", "800@32", "--network", "abci-v")
    near, far = of_run(capsys, 32 * 4096, 1024, *rate), of_run(capsys, 32 * 40960, 10240, *rate)
    assert width(far) > width(near)
    assert any("the largest known cluster has 4,352 GPUs" in one["why"] for one in far["doubts"])
    assert not any("the largest known cluster" in one["why"] for one in near["doubts"])
    assert far["epochs_to_target"] is None and "above 86,016" in far["epochs_source"]
    few = of_run(capsys, 64, 16)
    assert any("no published rank has a batch of 1," in one["why"] for one in few["doubts"])


def test_a_recipe_at_its_published_batch_takes_its_published_epochs(home: Path, capsys: Said) -> None:
    words = ["predict", str(ROOT / "examples/recipes/imagenet.yaml"), "--set", "train.recipe=nvidia-80s"]
    found = answer(capsys, *words, "--set", "train.batch=59904", "--set", "train.accumulate=8")
    assert (found["epochs_to_target"], found["target"]) == (90.0, "75.9 %")
    assert found["epochs_source"] == "as published of nvidia-80s at this batch"
    other = answer(capsys, *words, "--set", "train.batch=4096")
    assert other["epochs_source"] != found["epochs_source"]


def test_a_measured_spread_replaces_the_published_one() -> None:
    quiet = Device("here", 0.0, 1e-3, ranks=8, spread=0.01, measured=True)
    waits = stragglers(64, quiet.ranks, quiet.spread)
    one = step(quiet, 32, lambda size: 0.0, stragglers=waits)
    assert one.stragglers_s == pytest.approx(0.01 * 0.032 * (expected_maximum(64) - expected_maximum(8)))
    assert one.total_s == pytest.approx(0.032 + one.stragglers_s)


def test_a_measurement_whose_steps_differ_much_is_too_wide_to_plan_by() -> None:
    """14 steps that differ by 95 %: 1.645 x 1.2533 x 0.95 / 3.742 = 52 % beside the 4 % of quiet steps."""
    shared, quiet = doubts.same_program(0.95), doubts.same_program(0.01)
    assert shared.between.high == pytest.approx(1 + (0.04**2 + 0.5235**2) ** 0.5, rel=1e-3) and shared.between.is_wide
    assert "differ by 95 %" in shared.why and "shared cores" in shared.why
    assert quiet.between.high == pytest.approx(1.04, abs=1e-3) and quiet.why == doubts.SAME


def test_ranks_that_share_cores_may_wait_for_one_unknown_how_long(
    home: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo has four ranks on this machine, and the upper bound has each wait for the others on its core."""
    found = {}
    for cores in (4, 2):
        monkeypatch.setattr("os.sched_getaffinity", lambda process, cores=cores: set(range(cores)))
        found[cores] = answer(capsys, "predict", DIGITS, "--images-per-s", "1000")
    own, shared = found[4], found[2]
    assert own["step_s"] == shared["step_s"] and not any("share a core" in one["why"] for one in own["doubts"])
    assert shared["doubts"][-1]["why"].startswith("2 ranks share a core") and "unknown" in shared["doubts"][-1]["why"]
    compute_s = sum(shared[part] for part in ("forward_s", "backward_s", "fixed_s"))
    assert shared["intervals"]["step_s"][0] == own["intervals"]["step_s"][0]
    assert shared["intervals"]["step_s"][1] >= shared["step_s"] + compute_s > own["intervals"]["step_s"][1]


def test_links_that_were_measured_badly_are_as_doubtful_as_their_fit() -> None:
    described, exactly, badly = doubts.links_factor(), doubts.links_factor(0.01), doubts.links_factor(0.85)
    assert (described, exactly) == (Interval(1 / 1.5, 1.5), Interval(0.92, 1.14))
    assert badly == Interval(1 / 1.85, 1.85)


def test_resnet50_has_the_tensors_of_the_paper() -> None:
    layers = resnet50()
    assert len(layers) == 161
    assert sum(layer.parameters for layer in layers) == 25_557_032
    assert layers[-1].parameters == 9_408, "conv1 is reached last"
    ready = ready_s(layers, 1.0)
    assert ready == sorted(ready) and ready[-1] == pytest.approx(1.0)
