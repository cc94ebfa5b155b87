"""What doctor's job says: its end, files seen by both sides, clocks, and the nodes beside the site's file."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.keys.read import read
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.sites.hello_job import Talk, judged, skew_s

SITE = read(Site, "scheduler: slurm\nlauncher: srun\nnode: {ranks: 1, interface: ib0, hcas: [mlx5_0]}\n", "s.yaml")[0]


def view(state: State, reason: str = "") -> View:
    return View(
        run="doctor-1", state=state, reason=reason, attempt=1, job="7", scheduler="slurm", grid=(2,), ranks=2,
        hosts=("n1", "n2"), step=None, total_steps=None, images_per_s=None, accuracy=None, folder="/runs/doctor-1",
    )  # fmt: skip


def talk(skew: float = 0.0, **changes: Any) -> Talk:
    """Two ranks that were answered 0.1 s after they wrote, and saw it 0.1 s later."""
    node = {"word": "w", "python": "3.11.2", "cores": 8, "gpus": 0, "interfaces": ["ib0", "lo"], "adapters": ["mlx5_0"],
            "scratch": "/tmp", "scratch_free_bytes": 2**30}  # fmt: skip
    said = Talk(Path("/runs"), "w")
    for rank in range(2):
        told = {"rank": rank, "host": f"n{rank + 1}", **node, **changes}
        said.hello[rank] = {**told, "time_s": 100.0 + skew}
        said.answered_s[rank] = 100.1
        said.done[rank] = {**told, "answer": "w", "seen_s": 100.2 + skew, "met": "", **changes}
    return said


def outcomes(said: Talk, state: State = State.COMPLETED, reason: str = "") -> dict[str, str]:
    return {check.name: check.outcome for check in judged(SITE, 2, said, view(state, reason), "a line of the log")}


def test_a_job_that_ran_well() -> None:
    assert outcomes(talk()) == {"job": "ok", "shared files": "ok", "clocks": "ok", "node": "ok"}


def test_a_job_that_failed_gives_the_reason_and_the_log() -> None:
    (job,) = judged(
        SITE, 2, Talk(Path("/runs"), "w"), view(State.FAILED, "srun ended with exit code 1"), "no such file"
    )
    assert job.outcome == "failed" and "srun ended with exit code 1 (no such file)" in job.said and job.mend


def test_ranks_that_did_not_meet_are_reported_with_the_interface() -> None:
    said = talk(met="10.0.0.1:4321: timed out")
    (job, *_) = judged(SITE, 2, said, view(State.FAILED, "rank 1 ended with exit code 1"), "")
    assert job.outcome == "failed" and "timed out" in job.said and "node.interface" in job.mend


def test_nodes_that_see_another_folder_or_see_it_late() -> None:
    assert outcomes(talk(word="other"))["shared files"] == "failed"
    assert outcomes(talk(answer=""))["shared files"] == "warning"
    one = talk()
    del one.hello[1], one.done[1]
    assert outcomes(one)["shared files"] == "failed"


def test_clocks_that_differ() -> None:
    assert outcomes(talk(skew=1.0))["clocks"] == "ok"
    assert outcomes(talk(skew=-5.0))["clocks"] == "warning"
    assert outcomes(talk(skew=90.0))["clocks"] == "failed"


def test_a_node_that_is_not_as_the_site_says() -> None:
    checks = {check.name: check for check in judged(SITE, 2, talk(interfaces=["eth0"]), view(State.COMPLETED), "")}
    assert checks["node"].outcome == "warning" and "no interface ib0, but eth0" in checks["node"].said


@given(ahead=st.floats(-1e6, 1e6), there=st.floats(0, 100), back=st.floats(0, 100))
def test_the_clock_of_a_node_is_within_what_is_reported(ahead: float, there: float, back: float) -> None:
    """Whatever time the files took in each direction."""
    written_s = 1e9
    found_s, error_s = skew_s(written_s + ahead, written_s + there, written_s + there + back + ahead)
    assert abs(found_s - ahead) <= error_s + 1e-3
