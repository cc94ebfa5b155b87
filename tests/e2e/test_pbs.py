"""What runs ask for, where they can start, and what they ask for next, as an existing PBS understood it."""

import json
import re
from pathlib import Path

import pytest

from tests.e2e.pbs_place import PBS
from tests.e2e.places import WAITS, ledger, started

pytestmark = pytest.mark.lab
ONE_RANK = ("--set", "nodes=1", "--set", "ranks_per_node=1", "--set", "grid=1x1")


@pytest.fixture(scope="module")
def pbs() -> PBS:
    if reason := PBS.why_not_here():
        pytest.skip(reason)
    return PBS()


def shown(pbs: PBS, run: Path) -> dict[str, str]:
    """The job of a run in PBS's own words."""
    said = pbs.run(["qstat", "-f", "-w", pbs.view(run)["job"]])
    assert said.returncode == 0, said.stderr
    return dict(re.findall(r"^    ([\w.]+) = (.*)$", said.stdout, re.MULTILINE))


def test_pbs_gets_each_part_of_a_request(pbs: PBS) -> None:
    host = re.findall(r"^\S+", pbs.run(["pbsnodes", "-a"]).stdout, re.MULTILINE)[-1]
    asked = f"{{constraint: host={host}, memory: 700M, cpus_per_rank: 2, gpus: 1, exclusive: true, options: [-p -7]}}"
    run = pbs.submit_script(f"echo cores $OMP_NUM_THREADS; {WAITS}", *ONE_RANK, "--set", f"request={asked}")
    started(run)
    job = shown(pbs, run)
    assert job["Resource_List.select"] == f"1:ncpus=2:mpiprocs=1:ngpus=1:mem=700mb:host={host}"
    assert (job["Resource_List.place"], job["Priority"]) == ("scatter:excl", "-7")
    assert pbs.view(run)["hosts"] == [host]
    pbs.release(run)
    assert pbs.watch(run).returncode == 0, pbs.view(run)
    assert "cores 2" in (run / "attempts/1/logs/rank-0000.log").read_text()


@pytest.mark.parametrize(
    ("asked", "code", "why"),
    [
        ("{qos: long}", 2, "write 'queue'"),
        ("{constraint: fast}", 2, "write NAME=VALUE"),
        ("{constraint: torusrun_none=1}", 3, "Unknown resource"),
        ("{reservation: R0}", 3, "Unknown queue"),
        ("{licenses: [torusrun_none]}", 3, "Unknown resource"),
    ],
)
def test_what_pbs_does_not_have_is_refused_and_leaves_no_run(pbs: PBS, asked: str, code: int, why: str) -> None:
    pbs.write_script("true")
    said = pbs.torusrun("submit", "script.yaml", *ONE_RANK, "--set", f"request={asked}")
    assert said.returncode == code and why in said.stderr and said.stderr.count("\n") == 1, said.stderr


def test_a_run_starts_in_the_usual_queue_and_nowhere_with_too_many_nodes(pbs: PBS) -> None:
    pbs.write_script("true")
    queued = pbs.queued()
    (usual,) = (found for found in _where(pbs, *ONE_RANK) if found["usual"])
    assert usual["outcome"] == "can start" and usual["nodes"] >= 4, usual
    impossible = _where(pbs, "--set", "nodes=9999", "--set", "grid=auto")
    assert {found["outcome"] for found in impossible if found["nodes"]} == {"never"}, impossible
    assert pbs.queued() == queued, "nothing may be submitted"


def _where(pbs: PBS, *words: str) -> list[dict[str, object]]:
    said = pbs.torusrun("where", "script.yaml", "--json", "--site", "site.yaml", *words)
    assert said.returncode in (0, 2), said.stderr
    return json.loads(said.stdout)["places"]


def test_an_attempt_that_lacked_time_asks_for_more(pbs: PBS) -> None:
    grow = "keep_going={attempts: 2, grow: {time: 4, most: {time: 10m}}}"
    run = pbs.submit_script("sleep 40", *ONE_RANK, "--set", "time=30s", "--set", grow)
    assert pbs.watch(run).returncode == 0, pbs.view(run)
    assert [event["state"] for event in ledger(run, "ended")] == ["TIMEOUT", "COMPLETED"]
    assert ledger(run, "submitting")[1]["changes"] == {"time_s": 120.0}
    assert "#PBS -l walltime=00:02:00" in (run / "attempts/2/job.sh").read_text()
