"""The causes of ends: which one each kind of evidence shows, and where it is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.job.verdict import Evidence, verdict
from torusrun.orchestrator.nodes.findings import PreflightRecord
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import place
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, Submitted
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.log_errors.last_error import last_error
from torusrun.orchestrator.run.folder.records import FEW, End, Meaning, RankEnd, on_full_disk
from torusrun.orchestrator.run.program.training import EXIT_CODES
from torusrun.orchestrator.run.state.outcome import resolve
from torusrun.orchestrator.schedulers.launchers import Words

PLACED = place(Grid((2, 2)), ["n1", "n2"], 2)
DONE, FAILED, BAD_CONFIG, CUT_OFF, UNSAVED, STOPPED = 0, 1, 2, 69, 74, 75
LOG = ["[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "a warning"]
DEVICE_FULL = {"error": lambda rank: last_error(LOG)}
LOST = Words(lost={"n2": "ORTE has lost communication with a remote daemon."})


def end(rank: int, code: int | None = None, **more: Any) -> RankEnd:
    slot = PLACED.slots[rank]
    meaning = Meaning.FAILED if code is None else EXIT_CODES.get(code, Meaning.FAILED)
    return RankEnd(rank, slot.host, slot.local_rank, 5.0, code, **{"meaning": meaning, **more})


def every(code: int) -> list[RankEnd]:
    return [end(rank, code) for rank in range(4)]


USERS_STOP, TIME_NEAR = ended(How.CANCELLED), ended(How.TIME_NEAR, limit_s=60.0)


@pytest.mark.parametrize(
    ("ends", "known", "cause", "hosts", "ranks"),
    [
        (every(DONE), {"done": True}, Cause.DONE, [], []),
        (every(DONE), {}, Cause.PROGRAM, [], []),
        (every(STOPPED), {"stop": USERS_STOP}, Cause.STOPPED, [], []),
        (every(STOPPED), {"stop": TIME_NEAR}, Cause.TIME_LIMIT, [], []),
        (every(STOPPED), {}, Cause.STOPPED, [], []),
        (every(CUT_OFF)[:2], {"launcher": LOST}, Cause.HOST_LOST, ["n2"], [2, 3]),
        (every(CUT_OFF)[:2], {}, Cause.HOST_LOST, ["n2"], [2, 3]),
        ([*every(CUT_OFF)[:3], end(3, signal=9)], {}, Cause.KILLED, ["n2"], [3]),
        ([end(0, DONE), end(2, DONE)], {}, Cause.KILLED, ["n1", "n2"], [1, 3]),
        ([end(0, CUT_OFF), end(2, DONE)], {"launcher": Words(killed={1: 9})}, Cause.KILLED, ["n1"], [1]),
        ([*every(CUT_OFF)[:3], end(3, FAILED)], {}, Cause.PROGRAM, ["n2"], [3]),
        ([*every(CUT_OFF)[:3], end(3, FAILED)], DEVICE_FULL, Cause.OUT_OF_DEVICE_MEMORY, ["n2"], [3]),
        ([end(0, FAILED), end(1, FAILED), end(3, 137, starved=True)], {}, Cause.OUT_OF_MEMORY, ["n2"], [3]),
        ([end(0, signal=9), end(3, signal=9, starved=True)], DEVICE_FULL, Cause.OUT_OF_MEMORY, ["n2"], [3]),
        (every(BAD_CONFIG), {}, Cause.CONFIGURATION, ["n1"], [0]),
        (every(BAD_CONFIG), {"needs_record": False}, Cause.PROGRAM, ["n1"], [0]),
        (every(UNSAVED), {}, Cause.DISK, ["n1"], [0]),
        (every(CUT_OFF), {}, Cause.CONNECTION, ["n1"], [0]),
        ([], {"launcher_code": -9}, Cause.LAUNCHER, [], []),
        ([], {"launcher_code": 1, "launcher": Words(last="not enough slots")}, Cause.LAUNCHER, [], []),
        ([end(1, error="runs on n2", meaning=Meaning.MISPLACED)], {}, Cause.LAUNCHER, ["n1"], [1]),
        ([end(1, error="no such image", meaning=Meaning.NO_IMAGE)], {}, Cause.IMAGE, ["n1"], [1]),
    ],
)  # fmt: skip
def test_the_evidence_shows_the_cause_and_whom_it_concerns(
    ends: Sequence[RankEnd], known: dict[str, Any], cause: Cause, hosts: list[str], ranks: list[int]
) -> None:
    stop = known.get("stop")
    evidence = Evidence(
        PLACED, {one.rank: one for one in ends}, here="n1", step=57,
        **{key: value for key, value in known.items() if key != "stop"},
    )  # fmt: skip
    said = verdict(evidence, stop)
    assert (said.cause, list(said.hosts), list(said.ranks), said.step) == (cause, hosts, ranks, 57), said.reason
    assert said.state is cause.state


@pytest.mark.parametrize("how", How)
def test_every_way_to_end_has_a_sentence_and_the_state_of_its_cause(how: How) -> None:
    said = ended(how, PLACED, ranks=[2, 3], step=57, idle_s=600.0, silent_s=70.0, limit_s=60.0)
    assert (said.cause, said.state, said.hosts, said.ranks) == (how.cause, how.cause.state, ("n2",), (2, 3))
    assert "{" not in said.reason


def test_every_cause_is_either_shown_in_a_job_or_said_by_a_scheduler() -> None:
    assert {how.cause for how in How} == {*Cause} - {Cause.PREEMPTED}


def test_the_evidence_of_an_end_is_kept_beside_its_words(tmp_path: Path) -> None:
    said = ended(How.KILLED, PLACED, by=end(3, signal=9), step=57, certain=False)
    assert said.evidence == {"signal": "SIGKILL"}
    said.write(tmp_path / "end.json")
    assert End.read(tmp_path / "end.json") == said
    ledger.append(tmp_path / "ledger.jsonl", Ended.by(1, said))
    (event,) = ledger.events(tmp_path / "ledger.jsonl")
    assert isinstance(event, Ended) and event.end == replace(said, certain=True)


@pytest.mark.parametrize("cause", [{}, {"cause": "of a newer version"}])
def test_a_record_without_a_cause_that_is_known_stays_readable(cause: dict[str, Any], tmp_path: Path) -> None:
    record = {"state": "FAILED", "reason": "rank 1 was killed", "certain": True, **cause}
    (tmp_path / "end.json").write_text(json.dumps(record))
    assert End.read(tmp_path / "end.json") == End(State.FAILED, "rank 1 was killed")
    line = {"t": 1.0, "event": "ended", "attempt": 1, "state": "FAILED", "reason": "rank 1 was killed", **cause}
    (tmp_path / "ledger.jsonl").write_text(json.dumps(line) + "\n")
    assert ledger.events(tmp_path / "ledger.jsonl") == [Ended(1, State.FAILED, "rank 1 was killed", time_s=1.0)]


@pytest.mark.parametrize(
    ("end_", "job", "done", "cause"),
    [
        (None, State.TIMEOUT, False, Cause.TIME_LIMIT),
        (None, State.PREEMPTED, False, Cause.PREEMPTED),
        (None, State.OOM, False, Cause.OUT_OF_MEMORY),
        (None, State.NODE_FAIL, False, Cause.HOST_LOST),
        (None, State.FAILED, False, Cause.UNKNOWN),
        (None, State.LOST, False, Cause.UNKNOWN),
        (None, State.FAILED, True, Cause.DONE),
        (replace(USERS_STOP, certain=False), State.PREEMPTED, False, Cause.PREEMPTED),
        (ended(How.KILLED, PLACED, by=end(3, signal=9), certain=False), State.OOM, False, Cause.OUT_OF_MEMORY),
        (ended(How.KILLED, PLACED, by=end(3, signal=9), certain=False), State.FAILED, False, Cause.KILLED),
        (USERS_STOP, State.TIMEOUT, False, Cause.STOPPED),
    ],
)
def test_the_scheduler_knows_the_cause_where_the_job_felt_a_signal(
    end_: End | None, job: State, done: bool, cause: Cause
) -> None:
    assert resolve([Submitted(1, "7", time_s=1.0)], 1, end_, Status(job, "so"), 1000.0, done=done).cause is cause


def test_a_record_and_a_sentence_name_few_of_many_hosts() -> None:
    many = ended(How.HOST_LOST, hosts=[f"n{number}" for number in range(9999)])
    assert len(many.hosts) > FEW and on_full_disk(many).cause is Cause.HOST_LOST
    assert on_full_disk(ended(How.ERROR, why="no")).cause is Cause.DISK
    hosts = [f"n{n}" for n in range(999)]
    end = ended(How.HOST_NO_RECORD, place(Grid((999, 1)), hosts, 1), hosts=hosts[1:])
    assert "n8 (rank 8) and 990 more" in end.reason and len(end.reason) < 500
    assert PreflightRecord(1.0, bad=dict.fromkeys(hosts, ("gpus: 3",))).why.endswith("n7 (gpus: 3) and 991 more")
