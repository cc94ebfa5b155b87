"""Effects of schedulers on runs, the same for each: dependencies, refusals, being down, hanging, a lost client."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e import processes
from tests.e2e.places import WAITS, Place, Said, ledger, started, until
from torusrun.orchestrator.nodes.findings import Judgement, PreflightRecord


def test_a_run_waits_for_another_to_complete(place: Place) -> None:
    first = place.submit_script(WAITS)
    second = place.submit_script("true", "--after", first.name)
    assert place.view(second)["state"] == "PENDING", "a run must wait for the one it was submitted after"
    place.release(first)
    assert place.watch(second).returncode == 0, place.view(second)
    done_s, started_s = ledger(first, "ended")[-1]["t"], ledger(second, "started")[-1]["t"]
    assert done_s <= started_s, "the second run began before the first had ended"


def test_a_run_whose_dependency_fails_never_runs_and_one_that_waits_for_any_end_does(place: Place) -> None:
    first = place.submit_script(WAITS)
    second, third = (place.submit_script("true", option, first.name) for option in ("--after", "--after-any"))
    rank = started(first)
    place.kill(rank["host"], rank["pid"])
    until(lambda: place.view(first)["state"] == "FAILED", "the first run to fail")
    until(lambda: place.view(second)["state"] not in ("PENDING", "RUNNING", "UNKNOWN"), "the second run to be dropped")
    view = place.view(second)
    assert view["state"] == "CANCELLED" and not list(second.glob("attempts/1/ranks/*")), view
    assert "never ran" in view["reason"] or "Dependency" in view["reason"] or "dependency" in view["reason"], view
    refused = place.torusrun("submit", "script.yaml", "--after", first.name)
    assert refused.returncode == 2 and "can only wait for a run that has yet to end" in refused.stderr
    assert place.watch(third).returncode == 0, place.view(third)
    # The ledger has a killed rank only from the first query on, which may be later than the end itself.
    ended_s = (first / "attempts/1/end.json").stat().st_mtime
    assert ended_s <= ledger(third, "started")[-1]["t"], "the third run began before the first had ended"


def test_good_nodes_pass_the_preflight_and_the_ranks_start(place: Place) -> None:
    if place.cluster == "slurm":
        pytest.skip("tests/lab/test_preflight.py tries it there")
    run = place.submit_script("true", "--set", "preflight=true")
    assert place.watch(run).returncode == 0, place.view(run)
    record = PreflightRecord.read(run / "attempts/1/preflight.json")
    assert record and not record.bad, record
    assert [node.host for node in record.nodes] == ledger(run, "started")[0]["hosts"]
    assert all(finding.result is not Judgement.BAD for node in record.nodes for finding in node.findings), record


def test_an_unknown_queue_is_refused_and_leaves_no_run(place: Place) -> None:
    if place.cluster == "local":
        pytest.skip("this machine has no queues")
    before = set((place.submit_script("true").parent).iterdir())
    said = place.torusrun("submit", "script.yaml", "--set", "queue=nosuch")
    assert said.returncode == 3 and said.stderr.count("\n") <= 2 and ("nosuch" in said.stderr or "queue" in said.stderr)
    assert set(next(iter(before)).parent.iterdir()) == before, "a refused run must leave no folder"


def test_a_scheduler_that_is_down_makes_runs_unknown_and_not_failed(place: Place) -> None:
    down = place.down()
    if down is None:
        pytest.skip("nothing here could be down")
    run = place.submit_script(WAITS)
    started(run)
    with down:
        view = until(lambda: (v := place.view(run))["state"] == "UNKNOWN" and v, "the state UNKNOWN")
        assert view["reason"], view
        said = place.torusrun("submit", "script.yaml")
        assert said.returncode == 3 and "Traceback" not in said.stderr, said.stderr
    until(lambda: place.view(run)["state"] == "RUNNING", "the run to be seen again")
    assert place.torusrun("cancel", run.name).returncode == 0
    until(lambda: place.view(run)["state"] == "CANCELLED", "the run to be cancelled")


def test_a_scheduler_that_hangs_costs_its_timeout_and_hides_no_end(place: Place) -> None:
    frozen = place.frozen()
    if frozen is None:
        pytest.skip("nothing here could hang")
    hasty = f"site={place.site('hasty.yaml', command_timeout='5s')}"
    run = place.submit_script(WAITS, "--set", hasty)
    started(run)
    with frozen:
        view = until(lambda: (v := place.view(run))["state"] == "UNKNOWN" and v, "the state UNKNOWN")
        assert "did not answer within 5 s" in view["reason"], view
        place.write_script("true")
        said = place.torusrun("submit", "script.yaml", "--set", hasty)
        assert said.returncode == 3 and "a job may exist anyway" in said.stderr, said
        assert place.view(said.stdout.strip())["state"] == "UNKNOWN"
    until(lambda: place.view(run)["state"] == "RUNNING", "the run to be seen again")
    with place.frozen():
        place.release(run)
        until((run / "attempts/1/end.json").exists, "the script to end")
        until(lambda: place.view(run)["state"] == "COMPLETED", "the end of a run whose scheduler hangs to be told")


def test_a_client_killed_while_it_submits_leaves_a_run_whose_state_is_true(place: Place) -> None:
    """Whether there is a job is unknown until it begins: then the job itself records it."""
    frozen = place.frozen()
    if frozen is None:
        pytest.skip("nothing here could hang")
    runs = place.submit_script("true").parent
    known = set(runs.iterdir())
    with frozen:
        client = place.start(["python", "-m", "torusrun", "submit", "script.yaml"])
        (run,) = until(lambda: {p for p in runs.iterdir() if p.name[0] != "."} - known, "the run folder of the client")
        login = {processes.namespace(): "login"}
        until(
            lambda: place.cluster == "pbs" or processes.of_run(run, login), "its command to the scheduler, which hangs"
        )
        client.kill()
        client.wait()
    view = place.view(str(run))
    assert view["state"] in ("UNKNOWN", "PENDING", "RUNNING", "COMPLETED"), view
    if view["state"] == "UNKNOWN":
        assert "was cut off" in view["reason"] and run.name in view["reason"], view
    with contextlib.suppress(AssertionError):  # it may never have been submitted: that is a right answer too
        until(lambda: place.view(str(run))["state"] in ("COMPLETED", "LOST"), "what came of the job", 90)
    view = place.view(str(run))
    looked_up = view["state"] == "LOST" and "has no job named" in view["reason"]
    assert looked_up or view["state"] in ("UNKNOWN", "COMPLETED"), view
    assert (view["state"] == "COMPLETED") == (run / "attempts/1/end.json").exists(), "it must tell whether the job ran"


@pytest.fixture(scope="module")
def scripts(place: Place) -> Iterator[dict[str, Future[Said]]]:
    """The same script in every place, for several purposes at once: only the cluster's name differs."""
    place.put("with_submitit.py", (Path(__file__).parent / "with_submitit.py").read_text())
    purposes = ["function"] if place.cluster in ("local", "slurm") else ["function", "array", "checkpoint"]
    with ThreadPoolExecutor(len(purposes)) as pool:
        yield {
            what: pool.submit(place.run, ["python", "with_submitit.py", place.cluster, what], timeout_s=420)
            for what in purposes
        }


@pytest.mark.parametrize("what", ["function", "array", "checkpoint"])
def test_a_script_written_with_submitit_alone(what: str, scripts: dict[str, Future[Said]]) -> None:
    if what not in scripts:
        pytest.skip("these are submitit's own jobs")
    said = scripts[what].result()
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{what}: well" in said.stdout
