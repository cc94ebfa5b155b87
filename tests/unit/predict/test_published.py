"""The table of published records is pinned: a change of the model shows here."""

import pytest

from orchestrator.network.prediction import constants, published
from orchestrator.network.prediction.epochs import epochs_to_target
from orchestrator.network.prediction.records import PublishedRun, held_out

ERRORS_PERCENT = {
    "sony-v2-1024": 17.7,
    "sony-v2-3456": 15.7,
    "sony-v1-1088": 8.8,
    "nvidia-1040": 8.1,
    "nvidia-1536": 11.6,
    "fujitsu-mlperf": 32.4,
    "fujitsu-paper": 31.1,
    "fastai-16-224": 55.4,
    "fastai-16-128": 101.4,
    "facebook-256": 10.2,
    "pfn-1024": -3.6,
    "tencent-2048": 42.0,
    "surfsara-448": 37.1,
}
BASELINES = {"sony-v2-4", "nvidia-8", "nvidia-16", "fastai-4-224", "fastai-4-128", "surfsara-64"}


@pytest.fixture(scope="module")
def rows() -> dict[str, PublishedRun]:
    return {row.name: row for row in published.rows()}


def test_the_errors_of_all_published_rows_are_as_recorded(rows: dict[str, PublishedRun]) -> None:
    found = {name: row.error_percent for name, row in rows.items() if row.error_percent is not None}
    assert {name: round(error, 1) for name, error in found.items()} == ERRORS_PERCENT
    assert {name for name, row in rows.items() if row.role == "baseline"} == BASELINES
    assert {name for name, row in rows.items() if row.role == "unpredicted"} == {"google-1024"}


def test_every_row_out_of_5_percent_says_why_and_every_prediction_what_it_lacks(
    rows: dict[str, PublishedRun],
) -> None:
    for row in rows.values():
        if row.role in ("out", "unpredicted"):
            assert row.why, row.name
        if row.role != "baseline":
            assert row.not_modelled, row.name


def test_what_large_runs_lose_is_taken_from_the_others(rows: dict[str, PublishedRun]) -> None:
    found = {one.row.name: one for one in held_out(list(rows.values()))}
    errors = {"sony-v2-1024": 8.8, "sony-v2-3456": 1.5, "sony-v1-1088": 0.5, "nvidia-1040": -2.1, "nvidia-1536": -2.2}
    assert {name: round(one.error_percent, 1) for name, one in found.items()} == errors
    others = sorted(one.row.lost_s for name, one in found.items() if name != "nvidia-1040")
    assert found["nvidia-1040"].others_s == pytest.approx((others[1] + others[2]) / 2)


def test_no_row_is_predicted_from_itself_or_from_a_larger_one(rows: dict[str, PublishedRun]) -> None:
    for row in rows.values():
        if row.baseline and not row.baseline.startswith("gpu:"):
            base = rows[row.baseline]
            assert base.gpus < row.gpus and base.baseline is None


def test_no_published_number_moves_its_own_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {name: dict(row) for name, row in constants.table("published")["rows"].items()}
    before = {row.name: row.predicted for row in published.rows()}
    for row in table.values():
        if "baseline" in row:
            row["images_per_s"] = [1.0, "memory", "a wrong number"]
    monkeypatch.setitem(constants.table("published"), "rows", table)
    assert {row.name: row.predicted for row in published.rows()} == before


def test_the_model_does_not_reproduce_sonys_122_seconds() -> None:
    times = {d.name: d for d in published.durations()}
    assert times["sony-v2"].at_published_rate_s == pytest.approx(70.2, abs=0.1)
    assert times["sony-v2"].unexplained_s == pytest.approx(51.8, abs=0.1)
    assert times["fujitsu-mlperf"].unexplained_s == pytest.approx(3.9, abs=0.1)


def numbers(written: object, key: str = "") -> list[tuple[str, object]]:
    """All lists of the data files but those that are shapes of groups."""
    if isinstance(written, dict):
        return [found for k, v in written.items() for found in numbers(v, str(k))]
    return [(key, written)] if isinstance(written, list) and key not in ("groups", "matches") else []


@pytest.mark.parametrize("name", ["gpus", "networks", "epochs", "published"])
def test_every_constant_says_where_it_is_from(name: str) -> None:
    found = numbers(constants.table(name))
    assert found
    for key, written in found:
        assert constants.value(written).source, key


def test_epochs_between_the_reference_points() -> None:
    assert epochs_to_target(3264) == 35.2
    assert epochs_to_target(256) == 35.0
    between = epochs_to_target(40_000)
    assert between and 56 < between < 68
    assert epochs_to_target(67_841) is None
