"""The cause of an attempt's end, from the ranks' records, the launcher's words and the silence of others."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.job.gather import RankRecords, silences, words
from torusrun.orchestrator.job.hangs.hang import NOT_BEGUN, Pause, Where, hung, silent, stack
from torusrun.orchestrator.job.verdict import Evidence, verdict
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import place
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.log_errors.last_error import last_error
from torusrun.orchestrator.run.folder.records import End, Meaning, RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.program.training import EXIT_CODES
from torusrun.orchestrator.schedulers import remote_shell
from torusrun.orchestrator.schedulers.launchers import Words

PLACED = place(Grid((2, 2)), ["n1", "n2"], 2)
ALL = (0, 1, 2, 3)
CUT_OFF = 69
# Open MPI 4.1.4, a node powered off; Slurm 22.05.8; recorded.
ORTE = """--------------------------------------------------------------------------
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[45412,0],0] on node n1
  Remote daemon: [[45412,0],1] on node n2

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself. We cannot recover from this failure, and
therefore will terminate the job.
--------------------------------------------------------------------------
"""
NOTICED = "mpirun noticed that process rank 2 with PID 3113 on node n2 exited on signal 9 (Killed).\n"
SRUN = """srun: error: n2: task 2: Killed
srun: error: n1: tasks 0-1: Terminated
srun: error: n2: task 3: Exited with exit code 1
"""


def end(rank: int, exit_code: int | None = None, at_s: float = 5.0, **more: Any) -> RankEnd:
    slot = PLACED.slots[rank]
    meaning = Meaning.FAILED if exit_code is None else EXIT_CODES.get(exit_code, Meaning.FAILED)
    return RankEnd(rank, slot.host, slot.local_rank, at_s, exit_code, **{"meaning": meaning, **more})


def judged(
    ends: Sequence[RankEnd], stop: End | None = None, said: Mapping[int, Sequence[str]] | None = None, **more: Any
) -> End:
    known = {"here": "n1", "step": 57, "error": lambda rank: last_error((said or {}).get(rank, ())), **more}
    return verdict(Evidence(PLACED, {each.rank: each for each in ends}, **known), stop)


CANCELLED, OVERTIME = ended(How.CANCELLED), ended(How.TIME_NEAR, limit_s=60.0)
DONE, FAILED, UNSURE = (State.COMPLETED, True), (State.FAILED, True), (State.FAILED, False)
WELL = [end(rank, 0) for rank in ALL]
AFTER_DONE = [end(0, 0), end(1, 0), end(2, signal=15, told=True)]
STACK = ["Traceback", "ValueError: no such data", "", "Current thread 0x7f (most recent call first):", '  File "a"']
CLOSED = "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.2]:4242"
# What is known besides the records of ranks, the state and whether it is certain, and the reason, with * as in a shell.
JUDGED: dict[str, tuple[list[RankEnd], dict[str, Any], tuple[State, bool], str]] = {
    "all ended well, although they were asked to stop": (
        WELL, {"stop": OVERTIME, "done": True}, DONE, "all 4 ranks ended well"),
    "a cancellation does not take back a training that is done": (
        AFTER_DONE, {"stop": CANCELLED, "done": True}, DONE, "*rank 2 (n2, local rank 0) was killed by SIGTERM*"),
    "a time limit does not take back a training that is done": (
        AFTER_DONE, {"stop": OVERTIME, "done": True}, DONE, "*rank 2 (n2, local rank 0) was killed by SIGTERM*"),
    "a wrapper that stays after the training is done is named": (
        [end(r, 0) for r in (0, 1, 3)], {"done": True}, DONE,
        "the training recorded that it is done; rank 2 left no record of an end"),
    "a wrapper that had to be killed is named even if it recorded a good end": (
        WELL, {"done": True, "stayed": [3]}, DONE, "*the wrappers of rank 3 did not end by themselves*"),
    "a program of another's, in the place of the training, ends well too": (
        WELL, {}, FAILED, "*did not record that it is done*"),
    "the killed rank is the cause, and those that followed are not": (
        [*(end(r, CUT_OFF, 4.0) for r in (0, 1, 2)), end(3, at_s=4.5, signal=9)], {}, UNSURE,
        "rank 3 (n2, local rank 1) was killed by SIGKILL after step 57"),
    "a rank that was told to end is not the cause, even where SIGTERM kills it first": (
        [end(0, 1, 4.0), end(2, at_s=3.0, signal=15, told=True)], {"said": {0: ["no such key"]}, "told": ALL}, FAILED,
        "rank 0 (n1, local rank 0) ended with exit code 1 after step 57: no such key"),
    "the first of the failed ranks is quoted, and not its stack": (
        [end(0, 1, 9.0), end(1, 1, 8.0), end(2, CUT_OFF, 7.0), end(3, CUT_OFF, 7.0)], {"said": {1: STACK}}, FAILED,
        "rank 1 (n1, local rank 1) ended with exit code 1 after step 57: ValueError: no such data"),
    # Programs of others have no exit code for a lost peer: their last lines tell.
    "an error of its own is the cause before a lost connection that came first": (
        [end(0, 1, 1.0), end(2, 1, 2.0)], {"said": {0: [CLOSED], 2: ["IndexError: 7"]}, "told": (1, 3)}, FAILED,
        "rank 2 (n2, local rank 0) ended with exit code 1*IndexError*"),
    "a misplaced rank is the cause before anything else": (
        [end(0, signal=15, at_s=1.0), end(1, at_s=9.0, error="rank 1 stands on n2")], {}, FAILED,
        "*did not start: rank 1 stands on n2*"),
    "a host all of whose ranks fell silent, unless the scheduler knows better": (
        [end(0, CUT_OFF, 1.0), end(1, CUT_OFF, 2.0)], {}, (State.NODE_FAIL, False),
        "n2 (ranks 2, 3) stopped responding after step 57*rank 0 (n1*"),
    "the host of the supervisor is never lost": (
        [end(2, CUT_OFF), end(3, CUT_OFF)], {"here": "n1.cluster", "launcher": Words(lost={"n1": "lost"})}, UNSURE,
        "*ranks 0, 1 left no record*"),
    # mpirun leaves a wrapper a second between SIGTERM and SIGKILL: too little for a training's end, not for a note.
    "ranks that their launcher killed are not taken for a lost host": (
        [end(0, 1, 1.0), end(1, 1, 1.1)], {"told": (2, 3), "said": {0: ["ValueError: x"]}}, FAILED, "*rank 0*"),
    "no record of some ranks: a lost node looks like this, and the scheduler knows better": (
        [end(0, 0), end(2, 0)], {"launcher_code": 1}, UNSURE, "*ranks 1, 3 left no record*"),
    "a killed launcher is the cause of what its ranks did": (
        [end(r, 75, told=True) for r in (0, 1)], {"launcher_code": -9}, UNSURE,
        "the launcher of the ranks was killed by SIGKILL after step 57"),
    "ranks that lost one another, and none says why": (
        [end(r, CUT_OFF, 9.0 - r) for r in ALL], {"said": {3: ["Connection closed by peer"]}}, UNSURE,
        "rank 3 (n2, local rank 1) lost its connection to another rank after step 57*: Connection closed by peer"),
    "ranks that all stopped without our request were stopped from outside": (
        [end(r, 75) for r in ALL], {}, (State.CANCELLED, False),
        "the ranks received a request to stop from outside after step 57"),
    "a launcher that fails before any rank is quoted": (
        [], {"launcher": Words(last="not enough slots"), "launcher_code": 1}, UNSURE,
        "the launcher ended with exit code 1, and no rank left a record after step 57: not enough slots"),
}  # fmt: skip


@pytest.mark.parametrize("case", JUDGED)
def test_the_end_of_an_attempt(case: str) -> None:
    ends, known, (state, certain), reason = JUDGED[case]
    said = judged(ends, **known)
    assert (said.state, said.certain) == (state, certain) and fnmatchcase(said.reason, reason), said


TRACEBACK = "Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("log", "cut_off"),
    [
        (["upload timed out, retrying", TRACEBACK, '  File "a"', "ValueError: x"], False),
        (["upload timed out, retrying", "error: no such key"], False),
        ([TRACEBACK, "RuntimeError: Connection closed by peer", "a warning"], True),
        ([TRACEBACK, "OSError: Connection reset", "another exception occurred:", TRACEBACK, "KeyError: 1"], True),
        (['  File "a"', "RuntimeError: ncclRemoteError", "a warning"], True),
        (["RuntimeError: Connection reset by peer"], True),
    ],
)
def test_only_the_last_error_of_a_rank_shows_that_it_lost_another(log: list[str], cut_off: bool) -> None:
    assert Evidence(PLACED, {}, error=lambda rank: last_error(log)).cut_off(end(0, 1)) == cut_off


def test_a_message_before_an_abort_shows_a_lost_rank_and_a_rank_alone_loses_none() -> None:
    log = ["[rank0]: Watchdog caught collective operation timeout: it timed out", "frame #0: c10::Error"]
    assert Evidence(PLACED, {}, error=lambda rank: last_error(log)).cut_off(end(0, signal=6))
    alone = place(Grid((1,)), ["n1"], 1)
    assert not Evidence(alone, {}, error=lambda rank: last_error(["Connection reset by peer"])).cut_off(end(0, 1))


def test_a_lost_checkpoint_is_reported_by_the_rank_with_the_cause_whichever_ends_first() -> None:
    log = {0: ["training: the checkpoint of step 57 could not be written to /x: No space left on device"], 2: ["[W]"]}
    for first in (end(0, 74, 5.0), end(0, at_s=5.0, signal=15, told=True)):
        said = judged([first, *(end(r, 74, 4.9) for r in (1, 2, 3))], said=log)
        assert said.reason == f"rank 0 (n1, local rank 0) could not write its last files after step 57: {log[0][0]}"


def test_a_host_that_the_launcher_lost_is_a_node_failure() -> None:
    said = judged([end(0, 1, 1.0), end(1, CUT_OFF, 2.0)], launcher=words(ORTE), said={0: ["ValueError: secondary"]})
    assert (said.state, said.certain) == (State.NODE_FAIL, True)
    assert "lost n2 (ranks 2, 3) after step 57: ORTE has lost communication with a remote daemon." in said.reason
    assert "rank 1 (n1, local rank 1) lost its connection" in said.reason


@pytest.mark.parametrize("text", [NOTICED, SRUN, "spawn noticed that process rank 2 exited on signal 9\n"])
def test_a_killed_wrapper_is_named_and_no_innocent_rank(text: str) -> None:
    ends = [end(0, CUT_OFF, 1.0), end(1, 1, 1.0), end(3, 1, 1.0)]
    said = judged(ends, launcher=words(text), said={1: ["Connection reset by peer"], 3: ["whatever"]})
    assert said.reason == "the wrapper of rank 2 (n2, local rank 0) was killed by SIGKILL after step 57"


def test_wrappers_that_srun_ended_before_they_could_note_it_are_not_blamed_for_a_rank_that_failed() -> None:
    """Seen on Slurm: rank 0 fails at once while other wrappers still start."""
    ended_by_srun = words("srun: error: n1: task 1: Terminated\nsrun: error: n1: task 0: Exited with exit code 3\n")
    said = judged([end(0, 3, 1.0)], launcher=ended_by_srun, said={0: ["it is broken"]})
    assert said.cause is Cause.PROGRAM and said.reason.endswith("ended with exit code 3 after step 57: it is broken")
    alone = judged([end(0, CUT_OFF, 1.0)], launcher=ended_by_srun)
    assert "the wrapper of rank 1 (n1, local rank 1) was killed by SIGTERM" in alone.reason, "nothing else explains it"


def test_ranks_that_ignored_the_time_limit_are_named() -> None:
    said = judged([end(0, 75, told=True), end(2, signal=9, told=True)], ended(How.TIME_NEAR, limit_s=60.0))
    assert said.cause is Cause.TIME_LIMIT and said.reason == (
        "its time limit of 60 s was reached after step 57: rank 2 (n2, local rank 0) ignored the request to stop, "
        "and had to be killed"
    )
    assert judged([end(2, signal=9, told=True)], ended(How.CANCELLED)).reason == "cancelled by its user after step 57"


def test_a_rank_that_ended_well_before_the_others_is_the_cause_of_what_they_lost() -> None:
    lost = {0: ["RuntimeError: Connection closed by peer"]}
    said = judged([end(3, 0, 1.0), end(0, 1, 1.2)], said=lost, told=(1, 2), needs_record=False)
    assert said.cause is Cause.PROGRAM and said.reason == (
        "rank 3 (n2, local rank 1) ended with exit code 0 after step 57 while others were at work, which then lost it: "
        "RuntimeError: Connection closed by peer"
    )
    later = judged([end(3, 0, 9.0), end(0, 1, 1.2)], said=lost, told=(1, 2), needs_record=False)
    assert later.cause is Cause.CONNECTION


def test_a_crash_at_the_end_does_not_hide_the_error_that_came_first() -> None:
    said = judged([end(0, 1, 1.0), end(2, signal=11, at_s=1.5)], said={0: ["ValueError: x"], 2: ["step 3"]})
    assert said.reason.startswith("rank 0 (n1") and said.reason.endswith("ValueError: x")
    killed = judged([end(0, 1, 1.0), end(2, signal=9, at_s=1.5)], said={0: ["ValueError: x"]})
    assert killed.reason.startswith("rank 2 (n2"), "it may have had its record later than those that it ended"


def test_the_error_of_a_process_that_a_signal_ended_is_quoted() -> None:
    log = ["terminate called after throwing an instance of 'c10::Error'", "  what():  CUDA error: out of memory"]
    said = judged([end(2, signal=6)], said={2: log})
    assert said.cause is Cause.OUT_OF_DEVICE_MEMORY and said.reason.endswith("c10::Error: CUDA error: out of memory")
    crashed = judged([end(2, signal=11)], said={2: ["reading", "mesh.c:3: main: Assertion `n > 0' failed.", "bye"]})
    assert crashed.reason.endswith("was killed by SIGSEGV after step 57: mesh.c:3: main: Assertion `n > 0' failed.")


def test_a_worker_of_torchrun_that_was_killed_may_have_lacked_memory() -> None:
    log = (Path(__file__).parent / "recorded" / "errors" / "torchrun-killed.txt").read_text().splitlines()
    said = judged([end(0, 1)], said={0: log})
    assert (said.cause, said.certain) == (Cause.KILLED, False) and said.reason.endswith("1 was killed by SIGKILL")


ENDS = st.builds(
    end,
    st.sampled_from(ALL),
    st.sampled_from([0, 1, 2, 64, CUT_OFF, 75]),
    st.floats(0, 9),
    told=st.booleans(),
)


@example([end(0, 0), end(1, 0), end(2, 0, told=True), end(3, CUT_OFF)], set(), "")
@given(st.lists(ENDS, max_size=4), st.sets(st.sampled_from(ALL)), st.sampled_from(["", ORTE, NOTICED, SRUN]))
def test_whatever_is_known_there_is_one_end_and_no_rank_asked_to_stop_is_its_cause(
    ends: list[RankEnd], told: set[int], text: str
) -> None:
    known = {each.rank: each for each in ends}
    said = judged(list(known.values()), told=told, launcher=words(text))
    assert said.state.over and said.state is not State.COMPLETED and "\n" not in said.reason
    for rank in (each.rank for each in known.values() if each.told):
        assert not said.reason.startswith(f"rank {rank} ") or known[rank].exit_code == CUT_OFF, said


def test_why_our_remote_shell_failed_comes_before_what_the_launcher_guesses(tmp_path: Path) -> None:
    failed = subprocess.run(
        [sys.executable, remote_shell.__file__, "pbs", "n2", "orted"], text=True, capture_output=True, timeout=300,
        env={"PATH": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    said = judged([], launcher=words(f"{failed.stderr}{'-' * 74}\nORTE was unable to\n{'-' * 74}\n"), launcher_code=1)
    assert failed.returncode == 1 and failed.stderr.count("\n") == 1 and "Traceback" not in failed.stderr
    assert said.reason.startswith("the launcher cannot start its daemon on n2: pbs_tmrsh cannot be run on ")
    assert "put the folder of pbs's commands on the job's PATH" in said.reason and "ORTE" not in said.reason


def test_the_words_of_launchers() -> None:
    assert words(ORTE).lost == {"n2": "ORTE has lost communication with a remote daemon."}
    assert words("srun: error: Node failure on n7\n").lost == {"n7": "srun: error: Node failure on n7"}
    assert words(SRUN).killed == {2: 9, 0: 15, 1: 15}
    assert words("srun: error: n3: task 5: Segmentation fault (core dumped)\n").killed == {5: 11}
    assert words("anything else") == Words(last="anything else")
    missing = "bash: line 1: python4: command not found\n"
    repeated = "Primary job  terminated normally, but 1 process returned\na non-zero exit code.\n"
    for closing in ("srun: error: n1: task 0: Exited with exit code 127\n", f"{'-' * 74}\n{repeated}{'-' * 74}\n"):
        assert words(missing + closing).last == missing.strip()


WAITS = Where("S", ["/x/training/collectives/torus.py:61 _wait", "/x/training/loop.py:50 _train"])


@pytest.mark.parametrize(
    ("where", "state", "says"),
    [
        ({0: WAITS, 1: WAITS, 2: Where("T"), 3: WAITS}, State.FAILED, "rank 2 (n2, local rank 0): it is stopped"),
        ({0: WAITS, 1: WAITS, 3: WAITS}, State.FAILED, "the wrapper of rank 2 (n2, local rank 0) does not answer"),
        ({0: WAITS, 1: WAITS}, State.NODE_FAIL, "n2 does not answer, nor do its ranks 2, 3"),
        ({}, State.FAILED, "no wrapper of a rank answers"),
        (
            {0: WAITS, 1: WAITS, 2: Where(NOT_BEGUN), 3: Where(NOT_BEGUN)},
            State.FAILED,
            "and 1 more: its program has not",
        ),
        (
            {**dict.fromkeys((0, 1, 2), WAITS), 3: Where("R", ["/x/mine.py:9 load"])},
            State.FAILED,
            "at /x/mine.py:9 load",
        ),
        (dict.fromkeys(ALL, WAITS), State.FAILED, "all ranks are at work or wait for one another, the first at /x/tr"),
    ],
)
def test_the_rank_that_a_hung_training_waits_for_is_named(where: dict[int, Where], state: State, says: str) -> None:
    said = hung(PLACED, where, Pause(600.0, 300.0, 57, "steps"))
    assert said.state is state and says in said.reason, said
    limit = " (limit: 300 s for steps)" if state is State.FAILED else ""
    assert said.reason.startswith(f"no progress for 600 s after step 57{limit}: ")


@pytest.mark.parametrize("module", ["collectives.torus", "meeting.agree", "meeting.rendezvous"])
def test_a_rank_waits_for_others_in_the_modules_that_do(module: str) -> None:
    found = importlib.util.find_spec(f"torusrun.training.{module}")
    assert found and Where("S", [f"{found.origin}:61 _wait"]).waits_for_others


def test_only_stacks_that_are_known_are_promised() -> None:
    sleeps = dict.fromkeys(ALL, Where("S"))
    assert "stacks" not in hung(PLACED, sleeps, Pause(600.0, 300.0)).reason
    assert hung(PLACED, {**sleeps, 2: WAITS}, Pause(600.0, 300.0)).reason.endswith("; stacks are in the logs of rank 2")


def test_a_host_of_which_nothing_is_heard_while_no_step_comes_is_a_node_failure() -> None:
    assert silent(PLACED, {"n1": 0.0, "n2": 59.0}, 60.0, None) is None
    said = silent(PLACED, {"n1": 0.0, "n2": 71.0}, 60.0, 57)
    assert (
        said
        and said.state is State.NODE_FAIL
        and said.reason
        == ("n2 (ranks 2, 3) silent for 71 s, and no step came after step 57: the host is gone, or its link is cut")
    )


def test_hosts_are_heard_by_the_file_systems_clock(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path)
    attempt.ranks.mkdir()
    assert silences(attempt, PLACED) == {}
    for rank, at_s in ((0, 1e9), (2, 1e9 - 70)):
        attempt.rank_start(rank).write_text("{}")
        os.utime(attempt.rank_start(rank), (at_s, at_s))
    assert silences(attempt, PLACED) == {"n1": 0.0, "n2": 70.0}


def test_records_that_cannot_be_read_are_read_at_the_next_look(tmp_path: Path) -> None:
    ranks = RankRecords(Attempt(tmp_path))
    ranks.read()
    assert not (ranks.ends or ranks.told or ranks.answered()), "the folder is missing, as after a short failure"
    ranks.attempt.ranks.mkdir()
    end(1).write(ranks.attempt.rank_end(1))
    ranks.attempt.rank_end(0).write_text("{")
    ranks.read()
    assert sorted(ranks.ends) == [1]
    end(0).write(ranks.attempt.rank_end(0))
    ranks.read()
    assert sorted(ranks.ends) == [0, 1]


def test_a_rank_that_copies_its_image_has_not_begun_and_its_host_is_not_taken_for_dead(tmp_path: Path) -> None:
    ranks = RankRecords(Attempt(tmp_path))
    ranks.attempt.ranks.mkdir()
    for rank in (0, 1):
        ranks.attempt.rank_start(rank).write_text("{}")
    ranks.attempt.rank_seen(0).write_text('{"t": 1.0, "process": "S"}')
    where = ranks.where(ALL)
    assert where == {0: Where("S", []), 2: Where(NOT_BEGUN), 3: Where(NOT_BEGUN)}
    assert hung(PLACED, where, Pause(600.0, 600.0)).state is State.FAILED


def test_the_last_stack_in_a_log_is_read() -> None:
    log = [
        "Current thread 0x01 (most recent call first):", '  File "/old.py", line 1 in old', "something else",
        "Thread 0x02 (most recent call first):", '  File "/usr/lib/python3.11/threading.py", line 975 in run', "",
        "Current thread 0x01 (most recent call first):",
        '  File "/x/training/collectives/torus.py", line 61 in _wait',
        '  File "/x/training/loop.py", line 50 in _train',
    ]  # fmt: skip
    assert stack(log) == ["/x/training/collectives/torus.py:61 _wait", "/x/training/loop.py:50 _train"]
    assert stack(["no stack"]) == []
