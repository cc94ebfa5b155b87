"""The ledger under many writers, with torn and damaged lines, and which attempts it knows of."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torusrun.orchestrator.base import whole_lines
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder import events, ledger
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


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    program = (
        "import sys; from pathlib import Path; from torusrun.orchestrator.run.folder import events, ledger\n"
        "for i in range(50): ledger.append(Path(sys.argv[1]), events.Refused(int(sys.argv[2]), f'{i} ' + 'x' * 3000))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), str(n)]) for n in range(1, 5)]
    assert [w.wait(timeout=60) for w in writers] == [0] * 4
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
        reader.communicate(timeout=30)
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
