"""The ledger, the records of ends, the metrics and the plan: whole and believable, or damaged in words."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torusrun.orchestrator.base import whole_lines
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import LARGEST_BYTES, read_object
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.typed import kept_record, read_record, record_of
from torusrun.orchestrator.run.folder import events, ledger, metrics
from torusrun.orchestrator.run.folder.events import (
    CancelRequested,
    Changes,
    Ended,
    Event,
    Refused,
    Started,
    Submitted,
    Submitting,
    Unknown,
)
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.training.recipe.key import Limits

WHOLE = {"schema": 1, "state": "COMPLETED", "certain": True, "reason": "all well"}
RANK = {
    "rank": 1, "host": "n1", "local_rank": 1, "ended_s": 2.5, "exit_code": 0, "signal": None, "error": "",
    "told": False, "meaning": "done", "role": "", "role_rank": 0, "starved": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not JSON"), ("null", "not hold a JSON object"), ("[1]", "it does not hold a JSON object"),
        ("7", "not hold a JSON object"),
        ("[" * 100_000, "nested too deeply"), ('{"a": ' + "1" * 5000 + "}", "a number in it is too long"),
        ('{"a": "\xff"}', "it is not UTF-8 text"), ("\0" * 40, "it is not JSON"),
    ],
)  # fmt: skip
def test_a_record_that_is_no_json_object_is_damaged(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(SiteError, match=f"record.json: this is damaged: .*{why}"):
        read_object(path)


def test_a_pipe_in_place_of_a_record_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", LARGEST_BYTES + 1)
    for name in ("fifo", "link", "folder", "sparse"):
        with pytest.raises(SiteError, match=f"{name}: cannot be read: "):
            read_object(tmp_path / name)
    assert read_object(tmp_path / "nothing") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "FINE"}, {"state": "RUNNING"}, {"state": "UNKNOWN"}, {"state": None}, {"state": ["COMPLETED"]},
        {"certain": "true"}, {"certain": 1}, {"certain": None}, {"reason": None}, {"reason": 5}, {"cause": 3},
        {"ranks": 4}, {"hosts": [5]},
    ],
)  # fmt: skip
def test_an_end_is_whole_or_damaged(changes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "end.json"
    path.write_text(json.dumps(WHOLE))
    assert End.read(path) == End(State.COMPLETED, "all well")
    path.write_text(json.dumps({**WHOLE, **changes}))
    with pytest.raises(SiteError, match="end.json: this is damaged"):
        End.read(path)
    for key in changes.keys() & WHOLE:
        path.write_text(json.dumps({name: value for name, value in WHOLE.items() if name != key}))
        with pytest.raises(SiteError, match=f"{key!r} is missing"):
            End.read(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": "1"}, {"rank": -1}, {"rank": True}, {"exit_code": "0"}, {"exit_code": 10**30}, {"signal": 10**6},
        {"told": "no"}, {"meaning": "great"}, {"host": None}, {"error": ["x"]}, {"ended_s": "now"}, {"ended_s": None},
    ],
)  # fmt: skip
def test_the_end_of_a_rank_is_whole_or_damaged(changes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "0001.end.json"
    path.write_text(json.dumps({**RANK, "later": "versions may add something"}))
    assert RankEnd.read(path).good
    path.write_text(json.dumps({**RANK, **changes}))
    with pytest.raises(SiteError, match="0001.end.json: this is damaged"):
        RankEnd.read(path)


def test_a_rank_without_a_record_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="it is missing"):
        RankEnd.read(tmp_path / "0001.end.json")


STEP = {"t": 1.0, "attempt": 1, "event": "step", "step": 3, "total_steps": 9, "images_per_s": 800.0}


@pytest.mark.parametrize(
    "line",
    [
        "null", "[]", "7", "[" * 100_000, "9" * 5000, "\0" * 9, json.dumps({**STEP, "step": "3"}),
        json.dumps({**STEP, "step": None}), json.dumps({**STEP, "images_per_s": 10**400}),
        json.dumps({**STEP, "images_per_s": "fast"}), json.dumps({**STEP, "event": ["step"]}),
        json.dumps({**STEP, "step": 10**4000}), json.dumps(STEP).replace("800.0", "1e400"),
        json.dumps({"event": "step", "step": 1}),
    ],
)  # fmt: skip
def test_metrics_with_invalid_values_are_left_out_and_counted(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f"{json.dumps(STEP)}\n{line}\n")
    assert metrics.checked(path) == ([STEP], 1)


def test_of_huge_metrics_the_end_is_read_without_damage_from_a_torn_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.touch()
    os.truncate(path, 1 << 40)
    with open(path, "a") as file:
        file.write(f"\n{json.dumps(STEP)}\n")
    assert metrics.read(path, 1000) == [STEP]
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{json.dumps(STEP)}\n{{"t": 1')
    assert metrics.checked(path) == ([STEP], 0)
    path = tmp_path / "metrics.jsonl"
    rows = [{**STEP, "step": step} for step in range(1, 200)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert metrics.read(path, 1000) == rows[-len(metrics.read(path, 1000)) :]
    assert metrics.checked(path, 1000)[1] == 0, "the line that the tail begins in the middle of is not damaged"


def test_all_metrics_are_read_or_an_error_says_why_not(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f"{json.dumps(STEP)}\n")
    with open(path, "a") as file:
        file.truncate(70 << 20)
    assert metrics.read(path) == [STEP], "the first row of 70 MiB must not be lost"
    os.truncate(path, metrics.LARGEST_BYTES + 1)
    with pytest.raises(SiteError, match="larger than 1024 MiB"):
        metrics.read(path)


# The strict reader of JSON: what becomes a dataclass, and what is refused in words.


@dataclass(frozen=True)
class Part:
    name: str
    share: Annotated[float, Limits(at_least=0)] | None = None


@dataclass(frozen=True)
class Whole:
    number: int
    at_s: float = 0.0
    sure: bool = True
    parts: tuple[Part, ...] = ()
    pair: tuple[int, str] = (1, "a")
    labels: dict[str, str] | None = None


RECORD = Whole(3, 12.5, False, (Part("a", 0.5), Part("b")), (7, "x"), {"k": "v"})


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert read_record(path, Whole) is None
    path.write_text(json.dumps({"schema": 1, **asdict(RECORD)}))
    assert read_record(path, Whole) == RECORD
    assert kept_record(path, Whole, {**asdict(RECORD), "parts": [], "pair": [1, "a"]}, number=9).number == 9


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"number": 1.5}, "'number' is of type float, not int"), ({"number": True}, "'number' is of type bool"),
        ({"number": 10**18}, "'number' is 1000000000000000000, which is "
        "not a possible value"), ({"at_s": 1e12}, "'at_s' is 1"),
        ({"at_s": float("nan")}, "'at_s' is nan"), ({"sure": 1}, "'sure' is of type int, not bool"),
        ({"parts": {}}, "'parts' is of type dict, not list"), ({"parts": [{}]}, "'parts[0].name' is missing"),
        ({"parts": [{"name": "b"}, {"name": "a", "share": -1}]}, "'parts[1].share' must be at least 0"),
        ({"pair": [1]}, "'pair' has 1 entries"),
        ({"labels": {"a": 1}}, "'labels' is of type int, not str"),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_of_another_kind_is_damage(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps({**asdict(RECORD), **change}))
    with pytest.raises(SiteError, match=re.escape(f"record.json: this is damaged: {why}")):
        read_record(path, Whole)


def test_a_file_must_have_every_field_and_a_message_those_without_a_default(tmp_path: Path) -> None:
    assert record_of(Whole, {"number": 1, "unknown": 2}) == Whole(1)
    assert record_of(Part, {"name": "a\nb"}) == Part("a / b")
    (tmp_path / "part.json").write_text('{"name": "a"}')
    with pytest.raises(SiteError, match="'share' is missing"):
        read_record(tmp_path / "part.json", Part)


# The ledger under many writers, with torn and damaged lines, and which attempts it knows of.


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    program = (
        "import sys; from pathlib import Path; from torusrun.orchestrator.run.folder import events, ledger\n"
        "for i in range(50): ledger.append(Path(sys.argv[1]), events.Refused(int(sys.argv[2]), f'{i} ' + 'x' * 3000))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), str(n)]) for n in range(1, 5)]
    assert [w.wait(timeout=300) for w in writers] == [0] * 4
    found = ledger.events(path)
    for n in range(1, 5):
        seen = [int(e.reason.split()[0]) for e in found if isinstance(e, Refused) and e.attempt == n]
        assert seen == list(range(50)), "an event was lost or torn"


def test_of_a_huge_ledger_the_end_is_read_and_a_truncated_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger.append(path, Submitted(1, job="1"))
    with open(path, "a") as file:
        file.write('{"t": 1, "event": "sta')
    ledger.append(path, Ended(1, state=State.FAILED, reason=""))
    assert [e.kind for e in ledger.events(path)] == ["submitted", "ended"]
    path = tmp_path / "ledger.jsonl"
    path.touch()
    os.truncate(path, 1 << 40)
    ledger.append(path, Ended(1, state=State.FAILED, reason=""))
    found, damage = ledger.read(path)
    assert [event.kind for event in found] == ["ended"] and "its first events are left out" in damage


def test_a_reader_who_holds_a_lock_stops_nobody_from_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may read a file may lock it against writers."""
    monkeypatch.setattr(whole_lines, "LOCK_S", 0.1)
    path = tmp_path / "ledger.jsonl"
    ledger.append(path, Submitted(1, "7"))
    hold = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_SH); print('held', flush=True)"
    hold += "; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout and reader.stdout.readline() == "held\n"
        ledger.append(path, Started(1, "7", ("here",), (1, 1)))
        reader.communicate(timeout=300)
    assert [event.kind for event in ledger.events(path)] == ["submitted", "started"]


GOOD = {"t": 1.0, "event": "ended", "attempt": 1, "state": "FAILED", "reason": "rank 1 was killed"}


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "EXCELLENT"}, {"state": "RUNNING"}, {"state": None}, {"state": ["COMPLETED"]}, {"reason": 5},
        {"attempt": "1"}, {"attempt": 0}, {"attempt": True}, {"attempt": 1.0}, {"attempt": 10**9}, {"attempt": None},
        {"t": "now"}, {"t": None}, {"t": -1}, {"event": 3},
        {"event": "started", "job": "7", "hosts": "n1"}, {"event": "started", "job": "7", "hosts": [1]},
        {"event": "submitted", "job": 7}, {"event": "submitted", "job": "--help"},
        {"event": "submitted", "job": "a\0b"},
        {"event": "submitting"}, {"event": "refused", "reason": None}, {"event": "submitted", "job": ["7"]},
        {"event": "submitting", "name": "x", "after": "/runs/x"}, {"event": "submitting", "name": "x", "after": [5]},
        {"event": "submitting", "name": "x", "after_any": [5]},
        {"event": "submitting", "name": "x", "changes": {"nodes": 0}},
        {"event": "submitting", "name": "x", "changes": {"grid": [2, 0]}},
        {"event": "submitting", "name": "x", "changes": {"exclude": "n1"}}, {"cause": 3}, {"hosts": [5]}, {"ranks": 4},
    ],
)  # fmt: skip
def test_an_event_with_invalid_values_is_left_out_and_counted(changes: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path / "ledger.jsonl", json.dumps({**GOOD, **changes}), json.dumps(GOOD))
    found, damage = ledger.read(path)
    assert found == [Ended(1, State.FAILED, "rank 1 was killed", time_s=1.0)]
    assert damage == "1 of 2 lines cannot be read"


@pytest.mark.parametrize("line", ["null", "[]", "7", '"ended"', "[" * 100_000, "9" * 5000, '{"t": 1', "\0" * 50])
def test_a_line_that_is_no_event_is_left_out(line: str, tmp_path: Path) -> None:
    found, damage = ledger.read(written(tmp_path / "ledger.jsonl", line, json.dumps(GOOD)))
    assert (len(found), damage) == (1, "1 of 2 lines cannot be read")


def test_an_event_with_an_infinite_time_is_left_out(tmp_path: Path) -> None:
    line = json.dumps(GOOD).replace("1.0", "1e400")
    assert ledger.events(written(tmp_path / "ledger.jsonl", line)) == []


def test_what_is_no_regular_file_is_neither_waited_for_nor_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("fifo", "link", "folder"):
        assert ledger.read(tmp_path / name)[1].startswith("it cannot be read: ")
        with pytest.raises(SiteError, match=name):
            ledger.append(tmp_path / name, Ended(1, State.FAILED, ""))
    assert ledger.read(tmp_path / "nothing") == ([], "it is missing")
    assert ledger.read(written(tmp_path / "empty")) == ([], "it is empty")


def test_a_refused_attempt_counts_only_if_it_was_submitted_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for event in (Submitting(1, "x"), Submitting(2, "x"), Refused(2, "no such queue")):
        ledger.append(path, event)
    assert ledger.standing(ledger.events(path)) == {1: True, 2: False}
    ledger.append(path, Submitting(2, name="x"))
    assert ledger.standing(ledger.events(path)) == {1: True, 2: True}


HOSTS = st.lists(st.text(max_size=5), max_size=3).map(tuple)
GRIDS = st.none() | st.lists(st.integers(1, 99), min_size=1, max_size=3).map(tuple)
CHANGES = st.builds(
    Changes, st.none() | st.floats(0.001, 1e8), st.none() | st.integers(1, 99), GRIDS | st.just(()), HOSTS
)
JOBS = st.from_regex(events.JOB_ID, fullmatch=True)
NUMBERS = st.integers(1, events.LARGEST_ATTEMPT)
TIMES = {"time_s": st.integers(0, 10**10).map(float)}
EVENTS = st.one_of(
    st.builds(Submitting, NUMBERS, st.text(), HOSTS, HOSTS, st.none() | st.text(), CHANGES, **TIMES),
    st.builds(Submitted, NUMBERS, JOBS, st.text(), st.booleans(), **TIMES),
    st.builds(Refused, NUMBERS, st.text(), **TIMES),
    st.builds(Started, NUMBERS, JOBS, HOSTS, GRIDS, st.text(), **TIMES),
    st.builds(CancelRequested, NUMBERS, **TIMES),
    st.builds(Ended, NUMBERS, st.sampled_from([state for state in State if state.over]), st.text(), **TIMES),
)


@given(EVENTS)
@settings(max_examples=300, deadline=None)
def test_every_event_is_read_as_it_was_written(event: Event) -> None:
    assert events.from_json(json.loads(json.dumps(events.as_json(event)))) == event


def test_an_event_of_a_newer_version_is_kept_and_makes_no_attempt(tmp_path: Path) -> None:
    line = json.dumps({"t": 1.0, "event": "moved", "attempt": 3, "to": "n7"})
    found, damage = ledger.read(written(tmp_path / "ledger.jsonl", line, json.dumps({**GOOD, "by": "a newer version"})))
    assert found == [
        Unknown(3, "moved", {"to": "n7"}, time_s=1.0),
        Ended(1, State.FAILED, "rank 1 was killed", time_s=1.0),
    ]
    assert (damage, ledger.standing(found)) == ("", {1: True})
