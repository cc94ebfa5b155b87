"""What rank ends and the supervisor's pulse make one suspect while the scheduler says RUNNING: words, and no state."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.run.folder.at_work import Slow
from torusrun.orchestrator.run.folder.records import Meaning, RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.program.training import EXIT_CODES
from torusrun.orchestrator.run.state import suspect
from torusrun.orchestrator.run.state.suspect import LEAVE_S, SILENT_S, suspicion

NOW_S = 5000.0
PLACED = {f"node{n}": list(range(4 * (n - 1), 4 * n)) for n in (1, 2, 3)}
FIRST = "node1"


def _meaning(code: int | None) -> Meaning:
    return Meaning.FAILED if code is None else EXIT_CODES.get(code, Meaning.FAILED)


def end(rank: int, ago_s: float, code: int | None = 69, **more: object) -> RankEnd:
    known = {"exit_code": code, "meaning": _meaning(code), **more}
    return RankEnd(rank, f"node{rank // 4 + 1}", rank % 4, NOW_S - ago_s, **known)  # type: ignore[arg-type]


def record(attempt: Attempt, rank: int, ago_s: float, code: int | None = 69) -> None:
    """The end of a rank, written to its file at that time."""
    path = attempt.rank_end(rank)
    end(rank, ago_s, code).write(path)
    os.utime(path, (NOW_S - ago_s, NOW_S - ago_s))


WITNESS = "rank 0 (node1) lost its connection to another rank"


@pytest.mark.parametrize(
    ("ends", "pulse_s", "says"),
    [
        ([], None, ""),
        ([], 5.0, ""),
        ([], SILENT_S, ""),
        ([], 40.0, "the supervisor on node1 is silent for 40 s: it or its host is gone or stopped"),
        ([end(r, 12) for r in range(8)], 3, f"node3 is gone (its ranks 8-11 are silent, while {WITNESS} 12 s ago)"),
        ([end(r, 12) for r in range(4)], 3,
         f"at least one of node2, node3 is gone (their ranks 4-11 are silent, while {WITNESS} 12 s ago)"),
        ([end(0, 2)], 3, f"a rank is gone, or cannot be reached: {WITNESS} 2 s ago"),
        ([end(r, 90) for r in (0, 4, 9)], 3, f"a rank is gone, or cannot be reached: {WITNESS} 90 s ago"),
        ([end(0, 12), end(5, 11, None, signal=9)], 3,
         "it is ending: rank 5 (node2, local rank 1) was killed by SIGKILL, 11 s ago"),
        ([end(r, 12) for r in range(8)], 33,
         f"node3 is gone (its ranks 8-11 are silent, while {WITNESS} 12 s ago); the supervisor on node1 is "
         "silent for 33 s: it or its host is gone or stopped"),
        ([end(0, -300)], 3, f"a rank is gone, or cannot be reached: {WITNESS} 0 s ago"),
        ([end(r, 12, 0) for r in range(8)], 3, ""),
        ([end(r, 12, 75) for r in range(8)], 3, ""),
        ([end(r, 12, told=True) for r in range(8)], 3, ""),
    ],
)  # fmt: skip
def test_suspicions_from_ends_and_pulse(ends: list[RankEnd], pulse_s: float | None, says: str) -> None:
    found = suspicion(PLACED, [end.rank for end in ends], ends, pulse_s, FIRST, NOW_S)
    assert found == (says and f"suspected: {says}")


def test_a_supervisor_whose_host_nobody_knows_is_reported_without_one() -> None:
    assert suspicion({}, [], [], 125, "", NOW_S).startswith("suspected: the supervisor is silent for 2 min: ")


ENDS = st.builds(
    RankEnd, st.integers(0, 11), st.sampled_from(list(PLACED)), st.integers(0, 3), st.floats(NOW_S - 99, NOW_S + 99),
    st.sampled_from([None, 0, 1, 69, 74, 75]), st.sampled_from([None, 9, 15]), told=st.booleans(),
    meaning=st.sampled_from(Meaning),
)  # fmt: skip


@given(st.lists(ENDS, max_size=12), st.none() | st.floats(0, 99))
def test_no_host_is_called_gone_while_a_rank_of_it_spoke_or_might_still(
    ends: list[RankEnd], pulse_s: float | None
) -> None:
    ended = {end.rank for end in ends}
    found = suspicion(PLACED, ended, ends, pulse_s, FIRST, NOW_S)
    for host in re.findall(r"(node\d) is gone \(", found):
        assert not ended & set(PLACED[host])
        assert any(end.cut_off and not end.told and end.ended_s <= NOW_S - LEAVE_S for end in ends)
    asked = (Meaning.LATER, Meaning.OTHER_NODES)
    bad = [end for end in ends if not end.told and not end.good and (end.meaning not in asked or end.error)]
    assert bool(found) == bool(bad or (pulse_s or 0) > SILENT_S)


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    folder = Attempt(tmp_path / "1")
    folder.ranks.mkdir(parents=True)
    slots = [[rank, host, rank % 4, 0, 0] for host, ranks in PLACED.items() for rank in ranks]
    write_json(folder.placement, {"schema": 1, "grid": [4, 3], "slots": slots})
    return folder


def test_the_folder_of_an_attempt_is_read_for_it(attempt: Attempt) -> None:
    assert suspect.of_attempt(attempt, NOW_S) == ""
    attempt.pulse.write_text("node1\n")
    os.utime(attempt.pulse, (NOW_S - 4, NOW_S - 4))
    assert suspect.of_attempt(attempt, NOW_S) == ""
    for rank in range(8):
        record(attempt, rank, 12)
    assert suspect.of_attempt(attempt, NOW_S).startswith("suspected: node3 is gone (its ranks 8-11 are silent")
    attempt.rank_told(9).write_text("{}")
    assert suspect.of_attempt(attempt, NOW_S).startswith("suspected: a rank is gone, or cannot be reached: "), (
        "it spoke"
    )
    os.utime(attempt.pulse, (NOW_S - 50, NOW_S - 50))
    assert "the supervisor on node1 is silent for 50 s" in suspect.of_attempt(attempt, NOW_S)


def test_the_slow_ranks_that_the_supervisor_recorded_are_named(attempt: Attempt) -> None:
    assert suspect.slow_ranks(attempt) == ""
    Slow((3,), ("node1",), False, 1.5, 60).write(attempt.slow)
    assert suspect.slow_ranks(attempt).startswith("slow: rank 3 (node1) computes 1.5 times as long as the median")


@pytest.mark.parametrize("slots", [None, {}, [1], [[0, "a"]], [["0", "a", 0, 0, 0]], [[0, ["a"], 0, 0, 0]]])
def test_damaged_evidence_does_not_count(slots: object, attempt: Attempt) -> None:
    record(attempt, 0, 12)
    (attempt.ranks / "0001.end.json").write_text("{")
    (attempt.ranks / "9.end.json").write_text("{}")
    os.mkfifo(attempt.rank_end(2))
    write_json(attempt.placement, {"slots": slots})
    os.mkfifo(attempt.pulse)
    os.utime(attempt.pulse, (0, 0))
    found = suspect.of_attempt(attempt, NOW_S)
    assert found == f"suspected: a rank is gone, or cannot be reached: {WITNESS} 12 s ago"


def test_of_many_ends_some_are_read(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(suspect.MOST_ENDS + 9):
        attempt.rank_end(rank).touch()
    read: list[Path] = []
    monkeypatch.setattr(RankEnd, "read", lambda path: read.append(path) or end(0, 1, 0))
    assert suspect.of_attempt(attempt, NOW_S) == "" and len(read) == suspect.MOST_ENDS
