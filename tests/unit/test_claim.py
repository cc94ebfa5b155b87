"""At most one attempt of a run trains: locks live as long as ranks, the newer attempt wins, copies in memory go."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.clock import Clock
from tests.unit.verbs import Capsys, Patch
from tests.waiting import until
from torusrun.orchestrator.base import proc, process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import write_json, write_text
from torusrun.orchestrator.job import copies, earlier
from torusrun.orchestrator.job.ranks import rank_program
from torusrun.orchestrator.job.ranks.rank_program import RankProgram
from torusrun.orchestrator.job.start.launch_order import LaunchOrder, Rank, RoleOrder
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import place as placed
from torusrun.orchestrator.run.attempts import create
from torusrun.orchestrator.run.folder import claim, ledger
from torusrun.orchestrator.run.folder.claim import Superseded
from torusrun.orchestrator.run.folder.events import CancelRequested, Submitting
from torusrun.orchestrator.run.folder.log_times import Recorder, index_of
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import attempt_plan
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.program.what_runs import Program
from torusrun.orchestrator.schedulers import spawn
from torusrun.training.checkpoint import node_memory

HOLDS = """
import subprocess, sys, time
from pathlib import Path
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.run_folder import Attempt
lock = claim.hold(Attempt(Path(sys.argv[1])))
child = subprocess.Popen(["sleep", "600"], pass_fds=[lock])
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    for number in (1, 2, 3):
        made.attempt(number).folder.mkdir(parents=True)
    return made


def test_the_lock_of_a_rank_lives_as_long_as_any_process_of_it(run: RunFolder) -> None:
    assert claim.held(run.attempt(1)) is False, "an attempt that never began is not at work"
    wrapper = subprocess.Popen([sys.executable, "-c", HOLDS, run.attempt(1).folder], stdout=subprocess.PIPE, text=True)
    assert wrapper.stdout
    training = int(wrapper.stdout.readline())
    assert claim.held(run.attempt(1)) is True
    wrapper.kill()
    wrapper.wait()
    wrapper.stdout.close()
    assert claim.held(run.attempt(1)) is True, "a training without its wrapper still writes checkpoints"
    os.kill(training, signal.SIGKILL)
    until(lambda: claim.held(run.attempt(1)) is False, "the kernel to drop the lock with the last process")


def test_ranks_hold_the_lock_together(run: RunFolder) -> None:
    locks = [claim.hold(run.attempt(2)) for _ in range(3)]
    for lock in locks:
        assert claim.held(run.attempt(2)) is True
        os.close(lock)
    assert claim.held(run.attempt(2)) is False


def test_an_older_attempt_may_not_train_once_a_newer_one_has_begun(run: RunFolder) -> None:
    claim.take(run, 1)
    claim.check(run, 1)
    claim.take(run, 2)
    with pytest.raises(Superseded, match="attempt 2 of this run has begun: attempt 1 must not train at the same time"):
        claim.check(run, 1)
    with pytest.raises(Superseded):
        claim.take(run, 1)
    claim.check(run, 2)
    claim.check(run, 3)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12))
def test_the_newest_attempt_is_current_in_whatever_order_they_begin(
    tmp_path_factory: pytest.TempPathFactory, order: list[int]
) -> None:
    run = RunFolder(tmp_path_factory.mktemp("run"))
    for place, number in enumerate(order):
        try:
            claim.take(run, number)
        except Superseded:
            assert number < max(order[:place])
    claim.check(run, max(order))
    for number in range(1, max(order)):
        with pytest.raises(Superseded):
            claim.check(run, number)


@pytest.mark.parametrize("content", [b"", b"x", b"-1", b"\xff", b"9" * 50, b"1\n2\n"])
def test_a_damaged_number_of_the_current_attempt_is_replaced(run: RunFolder, content: bytes) -> None:
    run.current.write_bytes(content)
    claim.take(run, 1)
    claim.check(run, 1)
    claim.take(run, 2)
    with pytest.raises(Superseded):
        claim.check(run, 1)


def test_a_link_or_a_folder_in_place_of_a_lock_is_an_error(run: RunFolder, tmp_path: Path) -> None:
    run.attempt(1).alive.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SiteError, match="symbolic link"):
        claim.hold(run.attempt(1))
    assert claim.held(run.attempt(1)) is None, "nobody can tell"
    run.current.mkdir()
    with pytest.raises(SiteError, match="cannot be written"):
        claim.take(run, 1)


def test_a_file_system_without_locks_holds_nothing_and_says_that_it_cannot_tell(
    run: RunFolder, monkeypatch: Patch
) -> None:
    def none(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", none)
    os.close(claim.hold(run.attempt(1)))
    assert claim.held(run.attempt(1)) is None
    claim.take(run, 2)
    with pytest.raises(Superseded):
        claim.check(run, 1)


def test_a_lock_that_fails_is_an_error_and_not_a_file_system_without_locks(run: RunFolder, monkeypatch: Patch) -> None:
    def fail(descriptor: int, how: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(SiteError, match="alive: cannot be locked: Input/output error"):
        claim.hold(run.attempt(1))
    with pytest.raises(SiteError, match="current: cannot be written: Input/output error"):
        claim.take(run, 1)
    assert claim.held(run.attempt(1)) is None
    ledger.append(run.ledger, CancelRequested(1))
    assert ledger.last(ledger.events(run.ledger), CancelRequested, 1), "an event is kept without a lock"


def test_a_wrapper_ends_its_program_once_a_newer_attempt_has_begun(
    run: RunFolder, monkeypatch: Patch, capfd: Capsys
) -> None:
    """Its supervisor's host may be gone in silence, and the program may wait for a rank there for ever."""
    monkeypatch.setattr(rank_program, "NEWER_S", 0.1)
    heard = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in heard}
    log = run.attempt(1).folder / "log"
    child = process.start(["sleep", "600"], environment={}, parent_death=signal.SIGKILL)
    try:
        with log.open("ab") as output:
            program = Program(("sleep",), own_group=False)
            order = LaunchOrder("x", (RoleOrder(program),), ("R", "L"), (), (), None, 30.0, 0o077)
            rank = Rank(0, run.attempt(1), order, placed(Grid((1, 1)), ["here"], 1))
            running = RankProgram(rank, Recorder(output.fileno(), index_of(log)))
            claim.take(run, 2)
            assert running.wait(child) == (-signal.SIGKILL, False)
    finally:
        child.kill()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert "attempt 2 of this run has begun" in capfd.readouterr().err


IGNORES = HOLDS.replace("lock =", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); lock =")


@contextlib.contextmanager
def stopped(run: RunFolder, program: str = HOLDS) -> Iterator[list[int]]:
    """A wrapper of a rank that is stopped, and its program: both hold the lock of attempt 1."""
    wrapper = subprocess.Popen(
        [sys.executable, "-c", program, run.attempt(1).folder], stdout=subprocess.PIPE, text=True
    )
    assert wrapper.stdout
    pids = [wrapper.pid, int(wrapper.stdout.readline())]
    os.kill(wrapper.pid, signal.SIGSTOP)
    until(lambda: proc.state_of(wrapper.pid) == "T", "the wrapper to stop")
    try:
        yield pids
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wrapper.wait()
        wrapper.stdout.close()


@pytest.mark.parametrize(("program", "grace_s"), [(HOLDS, 0.0), (IGNORES, 0.3)])
def test_stopped_processes_of_this_host_are_named_and_ended(run: RunFolder, program: str, grace_s: float) -> None:
    with stopped(run, program) as (wrapper, training):
        who = claim.holders(run.attempt(1))
        assert f"process {wrapper} on {socket.gethostname()} (stopped)" in who and f"process {training} on" in who
        assert claim.holders(run.attempt(2)) == f"a process that holds the lock of {run.attempt(2).alive}"
        assert claim.end_holders(run.attempt(1), grace_s) and claim.held(run.attempt(1)) is False


def test_a_process_that_only_looks_whether_an_attempt_lives_is_not_ended(run: RunFolder) -> None:
    lock = os.open(run.attempt(1).alive, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    looks = subprocess.Popen(["sleep", "600"], pass_fds=[lock])
    os.close(lock)
    assert not claim.end_holders(run.attempt(1), 0.0) and looks.poll() is None
    looks.kill()
    looks.wait()


@pytest.mark.parametrize("listing", ["listdir", "scandir"])
def test_a_process_that_ends_during_the_search_for_holders_is_none(
    run: RunFolder, listing: str, monkeypatch: Patch
) -> None:
    real = getattr(os, listing)

    def ended(folder: object) -> object:
        if str(folder) == f"/proc/{child}/fd":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        return real(folder)

    monkeypatch.setattr(os, listing, ended)
    with stopped(run, HOLDS) as (wrapper, child):
        assert wrapper in proc.with_shared_lock(run.attempt(1).alive)


def test_ranks_elsewhere_are_named_by_their_records(run: RunFolder) -> None:
    lock, attempt = claim.hold(run.attempt(1)), run.attempt(1)
    attempt.ranks.mkdir()
    for rank in (0, 1):
        write_json(attempt.rank_start(rank), {"rank": rank, "host": f"n{rank}", "pid": 8, "wrapper": 7})
    write_json(attempt.rank_end(0), {})
    assert claim.holders(attempt) == "rank 1 on n1 (its wrapper is process 7)" and not claim.end_holders(attempt, 0.0)
    os.close(lock)


def test_the_next_attempt_lets_a_stopped_rank_continue_and_kills_one_that_stays(
    run: RunFolder, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(earlier, "time", Clock())
    with stopped(run) as (wrapper, _):
        assert earlier.wait_for_earlier(run, 2, 1.0, lambda: None) is None
        until(lambda: proc.state_of(wrapper) in ("Z", ""), "its end")
    lock = claim.hold(run.attempt(1))
    run.attempt(1).ranks.mkdir()
    write_json(run.attempt(1).rank_start(3), {"host": "n7", "wrapper": 4711})
    end = earlier.wait_for_earlier(run, 2, 1.0, lambda: None)
    os.close(lock)
    assert end and "rank 3 on n7 (its wrapper is process 4711); end it" in end.reason


STUBBORN = "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.kill(os.getpid(), 19)"


@pytest.mark.parametrize("asked", [True, False])
def test_the_launcher_of_one_machine_ends_a_rank_that_is_stopped(monkeypatch: Patch, asked: bool) -> None:
    """One rank is stopped, and ignores the request to end; the other ends badly, or all are asked to end."""
    other = "time.sleep(600)" if asked else "sys.exit(3)"
    program = f"import os, sys, time\nif os.environ['TORUSRUN_RANK'] == '0': {other}\n{STUBBORN}\ntime.sleep(600)"
    monkeypatch.setattr(spawn, "LATER_S", 0.2)
    handlers = {number: signal.getsignal(number) for number in (*spawn.STOPS, signal.SIGUSR1)}
    ranks = spawn.Ranks(2, 0.1, [sys.executable, "-c", program])
    until(lambda: proc.state_of(ranks.processes[1].pid) == "T", "a rank to stop")
    if asked:
        ranks.send(signal.SIGTERM)
    try:
        assert ranks.wait() == (-signal.SIGTERM if asked else 3)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert ranks.processes[1].returncode == -signal.SIGKILL


# The copies in the memory of a job's hosts are removed with its last attempt, and those of a newer attempt stay.


SITE = f"""scheduler: slurm
launcher: mpirun
node: {{{{ranks: 2}}}}
python: {sys.executable}
runs: {{home}}/runs
"""
RUN = """name: kept
site: ./site.yaml
nodes: 3
train: {batch: 66, checkpoints: {memory: true}}
"""
SRUN = """#!/bin/sh
for word; do
    case "$word" in --nodelist=*) echo "$word" >> "{home}/reached";; esac
    last="$word"
done
sh -c "$last"
"""


@pytest.fixture
def run_in_memory(home: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run with copies on this host, in a job of three hosts that srun reaches."""
    (home / "site.yaml").write_text(SITE.format(home=home))
    (home / "run.yaml").write_text(RUN)
    first = attempt_plan.first(plan(home / "run.yaml"))
    made = RunFolder(first.plan.folder)
    create.run(first, home, "true\n", Submitting(1, "kept.1"))
    (home / "shm").mkdir()
    monkeypatch.setattr(node_memory, "SHARED", home / "shm")
    monkeypatch.setattr("socket.gethostname", lambda: "n1")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    (home / "bin").mkdir(exist_ok=True)
    (home / "bin/srun").write_text(SRUN.format(home=home))
    (home / "bin/srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}/bin:/usr/bin:/bin")
    claim.take(made, 1)
    return made


def memory_of(run_in_memory: RunFolder) -> Path:
    folder = node_memory.of_run(run_in_memory.run_id, run_in_memory.checkpoints)
    node_memory.make(folder)
    (folder / "0.0").write_bytes(b"state")
    return folder


def test_the_copies_on_all_hosts_of_the_job_are_removed(run_in_memory: RunFolder, home: Path) -> None:
    folder = memory_of(run_in_memory)
    copies.remove(run_in_memory, 1, lost=["n2"])
    assert not folder.exists() and not folder.parent.exists(), "the folder of the user is left without a run"
    assert (home / "reached").read_text() == "--nodelist=n3\n", "each host but this one and the lost ones"


def test_copies_of_a_newer_attempt_stay(run_in_memory: RunFolder, home: Path) -> None:
    folder = memory_of(run_in_memory)
    write_text(run_in_memory.current, "2\n")
    copies.remove(run_in_memory, 1)
    assert folder.exists() and not (home / "reached").exists()


def test_hosts_have_copies_of_which_this_one_has_none(run_in_memory: RunFolder, home: Path) -> None:
    copies.remove(run_in_memory, 1)
    reached = sorted((home / "reached").read_text().split())
    assert reached == ["--nodelist=n2", "--nodelist=n3"], "this host may have had no room"


def test_after_a_training_that_is_done_no_host_is_queried(run_in_memory: RunFolder, home: Path) -> None:
    write_json(run_in_memory.attempt(1).done, {"schema": 1, "attempt": 1, "step": 40})
    folder = memory_of(run_in_memory)
    copies.remove(run_in_memory, 1)
    assert folder.exists() and not (home / "reached").exists(), "the ranks have removed theirs"


def test_a_host_that_does_not_answer_is_named_and_holds_nothing_up(
    run_in_memory: RunFolder, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(copies, "LIMIT_S", 0.0)
    (home / "bin/srun").write_text("#!/bin/sh\nexec sleep 600\n")
    memory_of(run_in_memory)
    copies.remove(run_in_memory, 1)
    assert "may be left in the memory of n2, n3" in capsys.readouterr().err


def test_few_of_many_hosts_are_reached_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "MOST_AT_ONCE", 2)
    command = ["sh", "-c", f"mkdir {tmp_path}/$$; set -- {tmp_path}/*; rmdir {tmp_path}/$$; test $# -le 2"]
    assert copies._not_reached({**{f"n{n}": command for n in range(6)}, "n6": ["false"]}) == ["n6"]
