"""When the ranks that are left of an attempt become those of the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.run_folders import write_specs
from tests.waiting import until
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.job.ranks import standby as waiting_rank
from torusrun.orchestrator.job.ranks.elastic import ElasticProgram
from torusrun.orchestrator.job.standby.beside_attempt import Standby
from torusrun.orchestrator.job.standby.survivors import Survivors
from torusrun.orchestrator.job.start.prepare import prepare
from torusrun.orchestrator.network.placement.grid import Grid
from torusrun.orchestrator.network.placement.mapping import place
from torusrun.orchestrator.planning.plan import plan
from torusrun.orchestrator.schedulers import launchers

# A supervisor whose ranks are left at once, twice.
LEFT = """import json, os, socket
job = socket.socket(fileno=int(os.environ["TORUSRUN_STANDBY"]))
for attempt in (1, 2):
    job.send(b"ready")
    print(json.loads(job.recv(9999))["attempt"], flush=True)
    job.send(b"taken")
"""
# A rank's program that imports nothing, and ends if its wrapper closes the socket.
PROGRAM = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).recv(9)"


def test_what_is_left_of_an_attempt_is_the_next_one_as_often_as_it_is_left(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    first = run.attempt(1)
    first.folder.mkdir(parents=True)
    (tmp_path / "left.py").write_text(LEFT)
    first.script.write_text(f"exec {sys.executable} {tmp_path}/left.py > {tmp_path}/said\n")
    standby = Standby(run, wanted=True, elastic=True)
    standby.look(1, [])
    child = standby.begin(first, {}, [])
    for number in (2, 3):
        until(lambda: standby.remains, "the supervisor to wait")
        assert standby.become(run.attempt(number), "7", {}, []) is child
    assert child.wait(60) == 0
    assert (tmp_path / "said").read_text() == "2\n3\n"
    standby.close()


def test_without_the_key_nothing_is_left_of_an_attempt(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.attempt(1).folder.mkdir(parents=True)
    run.attempt(1).script.write_text('test -z "${TORUSRUN_STANDBY:-}"\n')
    standby = Standby(run, wanted=False)
    child = standby.begin(run.attempt(1), {}, [])
    assert child.wait(60) == 0 and not standby.remains


@pytest.fixture
def launcher() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as child:
        yield child
        child.kill()


@pytest.mark.parametrize(
    ("hosts", "waiting", "begins"),
    [
        (("n1", "n2", "n3"), range(6), True),
        (("n3", "n1", "n2"), range(6), True),
        (("n1", "n2", "n3"), range(5), False),
        (("n1", "n2", "n4"), range(6), False),
        (("n1", "n2"), range(6), False),
    ],
    ids=["the same hosts", "in another order", "a rank that has not come back", "another host", "fewer hosts"],
)
def test_the_ranks_that_are_left_begin_in_the_next_attempt_on_the_same_hosts(
    hosts: Sequence[str], waiting: Sequence[int], begins: bool, home: Path, launcher: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("torusrun.orchestrator.job.standby.survivors.WAIT_S", 0.1)
    write_specs(home)
    made = plan(home / "run.yaml", settings=["keep_going={attempts: 2, elastic: true}"])
    run = RunFolder(made.folder)
    attempts = [_placed(run, number, made, on) for number, on in ((1, ("n1", "n2", "n3")), (2, hosts))]
    for rank in waiting:
        write_json(attempts[0].rank_standby(rank), {"pid": 1, "wrapper": 1})
    left = Survivors(made, attempts[0], launcher, attempts[0].stderr)
    assert left.fit(attempts[1]) == begins
    assert (launcher.poll() is None) == begins, "ranks that cannot begin are ended"
    assert begins or "the ranks start without the standby: " in capfd.readouterr().out


def _placed(run: RunFolder, number: int, made: object, hosts: Sequence[str]) -> Attempt:
    attempt = run.attempt(number)
    attempt.folder.mkdir(parents=True)
    placement = place(Grid((2, len(hosts))), hosts, 2)
    prepare(made, run, attempt, placement, None, launchers.named("spawn"), elastic=True)  # type: ignore[arg-type]
    return attempt


def test_a_lost_program_is_replaced_by_the_one_that_waits_or_else_by_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def started(rank: object, argv: list[str], keep: list[int], *others: object) -> subprocess.Popen[bytes]:
        begun.append(argv[0])
        return subprocess.Popen([sys.executable, "-c", PROGRAM, str(keep[0])], pass_fds=keep)

    monkeypatch.setattr(waiting_rank, "started", started)
    monkeypatch.setattr("torusrun.orchestrator.job.ranks.elastic.SPARE_S", 0.0)
    program = SimpleNamespace(standby=("spare",), elastic=("elastic",), argv=("", "config.json"))
    rank = SimpleNamespace(order=SimpleNamespace(program=program), variables=lambda *_: {})
    with ExitStack() as held, open("/dev/null", "wb") as log:
        elastic = ElasticProgram(rank, held)  # type: ignore[arg-type]
        child = elastic.begin(rank, log.fileno(), log, held)  # type: ignore[arg-type]
        assert not elastic.left() and begun == ["elastic", "spare"]
        for expected in (["elastic", "spare"], ["elastic", "spare", "elastic"]):
            child.kill()
            child.wait(60)
            elastic.renew()
            assert begun == expected
            lost, child = child, elastic.begin(rank, log.fileno(), log, held)  # type: ignore[arg-type]
            assert child is not lost and child.poll() is None
        elastic.renew()
        assert begun == ["elastic", "spare", "elastic"], "a program that lives stays"
    assert child.wait(60) == 0, "it ends with its wrapper"


def test_a_spare_takes_neither_the_requests_nor_the_program_of_the_rank_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []

    def started(rank: object, argv: list[str], keep: list[int], *others: object) -> subprocess.Popen[bytes]:
        begun.append(argv[0])
        for number in (signal.SIGUSR1, signal.SIGUSR2):  # as `beginning.started` does for the program
            signal.signal(number, signal.SIG_IGN)
        if argv[0] == "spare":
            raise SiteError("Resource temporarily unavailable")
        return subprocess.Popen([sys.executable, "-c", PROGRAM, str(keep[0])], pass_fds=keep)

    def hear(number: int, frame: object) -> None:
        """A handler of the wrapper."""

    monkeypatch.setattr(waiting_rank, "started", started)
    monkeypatch.setattr("torusrun.orchestrator.job.ranks.elastic.SPARE_S", 0.0)
    program = SimpleNamespace(standby=("spare",), elastic=("elastic",), argv=("", "config.json"))
    rank = SimpleNamespace(order=SimpleNamespace(program=program), variables=lambda *_: {})
    before = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)]
    try:
        with ExitStack() as held, open("/dev/null", "wb") as log:
            elastic = ElasticProgram(rank, held)  # type: ignore[arg-type]
            child = elastic.begin(rank, log.fileno(), log, held)  # type: ignore[arg-type]
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, hear)
            assert not elastic.left() and not elastic.left() and begun == ["elastic", "spare"], "one try in an attempt"
            assert [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)] == [hear, hear]
            assert child.poll() is None
        assert child.wait(60) == 0
    finally:
        for number, handler in zip((signal.SIGUSR1, signal.SIGUSR2), before, strict=True):
            signal.signal(number, handler)
