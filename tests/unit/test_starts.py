"""When jobs will start: what schedulers estimate, queried once per interval, in `status --long`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from tests.unit.slurm_programs import SlurmPrograms
from tests.unit.verbs import Capsys, Patch, prints
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.predict.words import attempts_for
from torusrun.orchestrator.schedulers import answers
from torusrun.orchestrator.schedulers.client import Client, answers_file
from torusrun.orchestrator.schedulers.pbs.scheduler import PBS
from torusrun.orchestrator.schedulers.slurm.scheduler import Slurm

ROOT = Path(__file__).resolve().parents[2]
START = datetime(2026, 11, 21, 0, 36, 17)
# Recorded of a Slurm 22.05: squeue -o "%i|%j|%u|%a|%P|%T|%r|%M|%l|%D|%C|%R|%S|%b"
SQUEUE = """25|pend|alice|lab|main|PENDING|Resources|0:00|10:00|8|8|(Resources)|N/A|N/A
27|dep|alice|lab|main|PENDING|Dependency|0:00|10:00|1|1|(Dependency)|N/A|N/A
28|later|alice|lab|main|PENDING|BeginTime|0:00|10:00|1|1|(BeginTime)|2026-11-21T00:36:17|N/A
29_[1-3%1]|arr|alice|lab|main|PENDING|Priority|0:00|10:00|1|1|(Priority)|N/A|N/A"""
# The attribute is in the form of a PBS that others recorded (estimated.start_time = Tue Feb 14 02:10:01 2023).
QSTAT = """Job Id: 7.pbs
    job_state = Q
    estimated.exec_vnode = (n1:ncpus=4)
    estimated.start_time = Sat Nov 21 00:36:17 2026

Job Id: 8.pbs
    job_state = Q

Job Id: 9.pbs
    job_state = Q
    estimated.start_time = soon
"""


def said(text: str, code: int = 0) -> Finished:
    return Finished(("program",), code, text, "")


def test_slurm_shows_starts_of_some_waiting_jobs() -> None:
    columns = (line.split("|") for line in SQUEUE.splitlines())
    text = "".join(f"{row[0]}|{row[12]}\n" for row in columns)
    query = Slurm().start_query(["28"])
    assert query.command[-1] == "--format=%i|%S" and "--me" in query.command
    assert query.read(said(text)) == {"28": START.timestamp()}
    assert query.read(said("28|Sat Nov 21|x\n28\n1|2026-99-99T00:00:00\n")) == {}
    with pytest.raises(SiteError, match="asking Slurm when jobs will start"):
        query.read(said("", 1))


def test_pbs_shows_starts_of_some_waiting_jobs() -> None:
    query = PBS().start_query(["7.pbs", "8.pbs"])
    assert list(query.command[-2:]) == ["7.pbs", "8.pbs"]
    assert query.read(said(QSTAT)) == {"7.pbs": START.timestamp()}


class Counted(Slurm):
    """A Slurm whose squeue writes down each call, and prints what is in a file; `fails` makes it fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start_query(self, job_ids: Sequence[str]):  # type: ignore[no-untyped-def]
        made = super().start_query(job_ids)
        return replace(made, command=["sh", "-c", f"echo x >> {self.folder}/count; cat {self.folder}/queue"])


@pytest.fixture
def client(tmp_path: Path) -> Client:
    (tmp_path / "queue").write_text("1|2026-11-21T00:36:17\n2|N/A\n")
    return Client(Counted(tmp_path), 10.0)


def count(client: Client) -> int:
    path: Path = client.scheduler.folder / "count"  # type: ignore[attr-defined]
    return len(path.read_text().split()) if path.exists() else 0


def age(client: Client, by_s: float) -> None:
    """Make the kept answers older."""
    place = answers_file(client.scheduler)
    kept = json.loads(place.read_text())
    starts = {key: [asked_s - by_s, start_s] for key, (asked_s, start_s) in kept["starts"].items()}
    place.write_text(json.dumps({**kept, "starts": starts}))


def test_one_query_answers_all_until_it_is_too_old(client: Client) -> None:
    for _ in range(3):
        assert answers.starts(client, ["1", "2"]) == {"1": START.timestamp()}
    assert count(client) == 1 and answers.starts(client, []) == {}
    assert answers.starts(client, ["3"]) == {} and count(client) == 1, "a new job does not cost a query at once"
    age(client, answers.STARTS_LEAST_S)
    assert answers.starts(client, ["1"]) and count(client) == 1
    assert answers.starts(client, ["1", "3"]) == {"1": START.timestamp()} and count(client) == 2
    age(client, answers.STARTS_EVERY_S)
    assert answers.starts(client, ["1"]) and count(client) == 3


def test_a_scheduler_that_fails_is_not_queried_again_at_once(client: Client) -> None:
    queue = client.scheduler.folder / "queue"  # type: ignore[attr-defined]
    queue.unlink()
    assert answers.starts(client, ["1"]) == answers.starts(client, ["1"]) == {} and count(client) == 1


def test_a_query_for_which_no_time_is_left_keeps_nothing(client: Client) -> None:
    assert not answers.starts(replace(client, until_s=time.monotonic() - 1.0), ["1"])
    assert count(client) == 0
    assert answers.starts(client, ["1"]) and count(client) == 1


def test_a_scheduler_without_estimates_is_not_queried() -> None:
    for name in ("local", "gridengine"):
        assert answers.starts(Client(schedulers.get(name), 10.0), ["1"]) == {}


@pytest.fixture
def waiting(home: Path, monkeypatch: Patch) -> SlurmPrograms:
    """A run whose job waits, and a squeue that counts the queries about starts."""
    slurm = SlurmPrograms(home, monkeypatch, "time: 1h\ncode: none\ncommand: [sleep, '1']")
    assert main(["submit", str(home / "run.yaml")]) == 0
    slurm.program(
        "squeue",
        f"""case "$*" in
*--format=%i?%S*) echo x >> {home}/starts; echo '1|2036-11-21T00:36:17';;
*) echo '1|PENDING|Resources|';;
esac""",
    )
    return slurm


def test_status_shows_when_a_waiting_run_starts(waiting: SlurmPrograms, capsys: Capsys) -> None:
    capsys.readouterr()
    assert main(["status"]) == 0 and "starts about" not in capsys.readouterr().out
    assert not (waiting.home / "starts").exists(), "without --long nothing more is asked"
    assert "starts about 2036-11-21 00:36 (slurm's estimate)\n" in prints(capsys, "status", "--long")
    (run,) = json.loads(prints(capsys, "status", "--long", "--json"))["runs"]
    assert run["starts_s"] == START.replace(year=2036).timestamp()
    assert len((waiting.home / "starts").read_text().split()) == 1


def test_a_start_that_has_passed_is_now(waiting: SlurmPrograms, capsys: Capsys) -> None:
    waiting.program("squeue", 'case "$*" in *%S*) echo "1|2020-01-01T00:00:00";; *) echo "1|PENDING|Resources|";; esac')
    capsys.readouterr()
    began_s = time.time()
    assert json.loads(prints(capsys, "status", "--long", "--json"))["runs"][0]["starts_s"] >= began_s


def test_attempts_by_a_time_limit() -> None:
    assert [attempts_for(work_s, 100.0, 10.0) for work_s in (0.0, 1.0, 90.0, 91.0, 181.0)] == [1, 1, 1, 2, 3]
    assert attempts_for(50.0, 10.0, 20.0) == 1, "a limit that is all for stopping says nothing"


def planned(capsys: Capsys, *words: str) -> dict[str, str]:
    """The rows of `plan`."""
    capsys.readouterr()
    rows = (line.split(None, 1) for line in prints(capsys, "plan", *words).splitlines() if line[:1].strip())
    return {row[0]: row[-1] for row in rows}


IMAGENET = str(ROOT / "examples/recipes/imagenet.yaml")  # 25.9 min on 16 nodes when this was written
SHORT = r"[\d.]+ node-hours in (\d) attempts, each of at most 10.0 min; `keep_going: {attempts: (\d)}` submits all.*"


def test_a_plan_counts_node_hours_and_attempts(capsys: Capsys) -> None:
    cost = planned(capsys, IMAGENET)["cost"]
    assert re.fullmatch(r"[\d.]+ node-hours", cost)
    spared = planned(capsys, IMAGENET, "--set", "keep_going={attempts: 2, spares: 4}")["cost"]
    assert float(spared.split()[0]) == pytest.approx(20 / 16 * float(cost.split()[0]), rel=1e-3)
    short = planned(capsys, IMAGENET, "--set", "time=10m")["cost"]
    match = re.fullmatch(SHORT, short)
    assert match and match[1] == match[2] and int(match[1]) > 1, short
    chained = planned(capsys, IMAGENET, "--set", "time=10m", "--set", "keep_going={attempts: 9}")["cost"]
    assert chained.endswith("by 9 jobs")
    assert json.loads(prints(capsys, "plan", IMAGENET, "--set", "time=10m", "--json"))["attempts"] == int(match[1])
