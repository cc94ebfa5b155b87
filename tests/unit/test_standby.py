"""When the standby becomes the next attempt, and when that attempt starts as every other one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace

import pytest

from tests.waiting import until
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.folder.run_folder import RunFolder
from torusrun.orchestrator.images.runtime import Runtime
from torusrun.orchestrator.job import gather
from torusrun.orchestrator.job.ranks import standby as waiting_rank
from torusrun.orchestrator.job.standby import beside_attempt
from torusrun.orchestrator.job.standby.beside_attempt import Standby
from torusrun.orchestrator.job.standby.ready_ranks import why_not
from torusrun.orchestrator.job.start.launch_order import LaunchOrder, RankImage
from torusrun.orchestrator.planning.plan import plan
from torusrun.orchestrator.planning.program.what_runs import Program

TRAINING = Program(("python", "training", "attempts/1/config.json"), standby=("python", "training", "--standby"))
ORDER = LaunchOrder("run", TRAINING, ("RANK", "LOCAL_RANK"), (), ((0,), (1,)), None, None, 10.0, 0o077)
NEXT = replace(ORDER, program=replace(TRAINING, argv=("python", "training", "attempts/2/config.json")))
IMAGE = RankImage(Runtime("apptainer", "apptainer", (1, 4)), "/other.sif")
HOSTS, TURNED = ("n1", "n2"), ("n2", "n1")
OTHER = "the attempt starts another program, or starts it in another way"
# A supervisor that waits, and one that has ended before the word.
WAITS = """import os, socket
job = socket.socket(fileno=int(os.environ["TORUSRUN_STANDBY"]))
job.send(b"ready")
print(job.recv(9999).decode(), flush=True)
job.send(b"taken")
"""
GONE = "import os, socket; socket.socket(fileno=int(os.environ['TORUSRUN_STANDBY'])).send(b'ready')"
# A rank's program that waits for its place: it ends by itself after 3 s, so that a missed word fails the test.
PROGRAM = """import socket, sys
wrapper = socket.socket(fileno=int(sys.argv[1]))
try:
    wrapper.send(b"ready")
    wrapper.settimeout(60)
    wrapper.recv(9)
except BrokenPipeError:  # the wrapper failed before this began
    pass
"""


def test_waiting_ranks_fit_the_next_attempt_on_the_same_hosts_in_any_order() -> None:
    assert why_not(ORDER, NEXT, HOSTS, TURNED) == ""


@pytest.mark.parametrize(
    ("before", "now", "hosts", "why"),
    [
        (ORDER, NEXT, ("n1", "n3"), "the attempt runs on other hosts"),
        (ORDER, NEXT, ("n1",), "the attempt runs on other hosts"),
        (ORDER, replace(NEXT, program=replace(NEXT.program, environment={"OMP_NUM_THREADS": "2"})), HOSTS, OTHER),
        (ORDER, replace(NEXT, beside=((1,), (0,))), HOSTS, OTHER),
        (
            ORDER,
            replace(NEXT, container=IMAGE),
            HOSTS,
            OTHER,
        ),
        (replace(ORDER, program=replace(TRAINING, standby=())), NEXT, HOSTS, OTHER),
    ],
    ids=["a lost host", "fewer hosts", "other variables", "other cores", "another image", "no standby"],
)
def test_waiting_ranks_do_not_fit_what_they_were_not_started_for(
    before: LaunchOrder, now: LaunchOrder, hosts: tuple[str, ...], why: str
) -> None:
    assert why_not(before, now, HOSTS, hosts) == why


@pytest.mark.parametrize(
    ("program", "number", "lost", "becomes"),
    [(WAITS, 2, [], True), (WAITS, 3, [], False), (WAITS, 2, ["n2"], False), (GONE, 2, [], False), ("", 2, [], False)],
    ids=["it waits", "another attempt", "a host was lost", "it was killed", "it is not ready"],
)
def test_a_standby_becomes_the_attempt_after_the_one_during_which_it_started(
    program: str,
    number: int,
    lost: list[str],
    becomes: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = RunFolder(tmp_path)
    first = run.attempt(1)
    first.folder.mkdir(parents=True)
    (tmp_path / "waits.py").write_text(program or "import time; time.sleep(60)")
    first.standby_script.write_text(f"cd {tmp_path}; {sys.executable} waits.py > said; echo > over; sleep 60\n")
    monkeypatch.setattr(gather, "newest_step", lambda run, attempt: 5)
    standby = Standby(run, wanted=True)
    standby.look(1, [])
    monkeypatch.setattr(beside_attempt, "ANSWER_S", 0.1 if program == GONE else 60.0)
    if program == GONE:
        until((tmp_path / "over").exists, "the supervisor to end")
    elif program:
        until(lambda: standby.ready, "the supervisor to be ready")
    try:
        child = standby.become(run.attempt(number), "7", {"TORUSRUN_JOB": "7"}, lost)
        assert (child is not None) == becomes
        assert becomes != (f"attempt {number} starts without the standby: " in capfd.readouterr().out)
        if child:
            until((tmp_path / "over").exists, "the supervisor to take the word")
            assert '"attempt": 2' in (tmp_path / "said").read_text()
            child.kill()
    finally:
        standby.close()
    standby.look(1, [])
    assert not standby.ready, "there is one standby for an attempt"


def test_no_standby_starts_before_the_first_step_or_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wanted, step in ((True, None), (False, 5)):
        monkeypatch.setattr(gather, "newest_step", lambda run, attempt, step=step: step)
        standby = Standby(RunFolder(tmp_path), wanted=wanted)
        standby.look(1, [])
        assert standby.become(RunFolder(tmp_path).attempt(2), "7", {}, []) is None


def test_metrics_that_cannot_be_read_do_not_end_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*which: object) -> None:
        raise SiteError("metrics.jsonl: cannot be read: Stale file handle")

    monkeypatch.setattr(gather, "newest_step", unreadable)
    Standby(RunFolder(tmp_path), wanted=True).look(1, [])


@pytest.mark.parametrize("program", ["command: [hostname]", "program: measure"])
def test_only_our_training_has_a_standby(program: str, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("scheduler: local\nlauncher: spawn\nnode: {ranks: 2}\npython: /opt/py\n")
    (tmp_path / "run.yaml").write_text(
        f"name: x\nsite: ./site.yaml\ncode: none\nkeep_going: {{attempts: 2, standby: true}}\n{program}\n"
    )
    with pytest.raises(UserError, match=r"run.yaml:4.*'keep_going.standby': only the training that ships"):
        plan(tmp_path / "run.yaml")


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Rank 0 of attempt 1, beside which a program waits."""

    def started(rank: object, argv: list[str], keep: list[int], *others: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", PROGRAM, str(keep[0])], pass_fds=keep)

    monkeypatch.setattr(waiting_rank, "started", started)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    program = SimpleNamespace(standby=("python",))
    slot = SimpleNamespace(local_rank=0, host="n1")
    attempt = RunFolder(tmp_path).attempt(1)
    yield SimpleNamespace(number=0, attempt=attempt, order=SimpleNamespace(program=program), slot=slot)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("seen", [[2], [None, None, 2]], ids=["at once", "its file is seen later"])
def test_a_rank_that_says_that_it_waits_misses_no_word(
    seen: list[int | None], beside: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    placement = SimpleNamespace(slots=[SimpleNamespace(rank=0, local_rank=0, host="n1")])
    monkeypatch.setattr(waiting_rank, "write_json", lambda *record: signal.pthread_kill(get_ident(), signal.SIGUSR1))
    monkeypatch.setattr(waiting_rank, "_following", lambda attempt: seen.pop(0))
    monkeypatch.setattr(waiting_rank, "ordered", lambda attempt: (beside.order, placement))
    monkeypatch.setattr(waiting_rank, "LOOK_S", 0.01)
    with ExitStack() as held:
        placed = waiting_rank.StandbyProgram(beside, held).placed()  # type: ignore[arg-type]
    assert placed and placed.attempt.number == 2


def test_a_program_that_waits_ends_if_its_wrapper_fails(
    beside: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(attempt: object) -> None:
        raise SiteError("its ranks have not been placed yet")

    monkeypatch.setattr(waiting_rank, "write_json", lambda *record: signal.pthread_kill(get_ident(), signal.SIGUSR1))
    monkeypatch.setattr(waiting_rank, "_following", lambda attempt: 2)
    monkeypatch.setattr(waiting_rank, "ordered", damaged)
    with pytest.raises(SiteError), ExitStack() as held:
        waiting = waiting_rank.StandbyProgram(beside, held)  # type: ignore[arg-type]
        waiting.placed()
    assert waiting._child.wait(90) == 0, "the wrapper would wait for its program until `kill_after`"
