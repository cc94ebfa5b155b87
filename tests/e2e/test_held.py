"""Held allocations, and shells beside ranks: the same in every place, with a real job around them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.places import WAITS, Place, ledger, only_on, started, until

OVER = ("COMPLETED", "CANCELLED", "FAILED", "LOST", "TIMEOUT")


@pytest.fixture(scope="module")
def held(place: Place) -> Iterator[Path]:
    place.write_script("true")
    said = place.succeeds("hold", "script.yaml", "--time", "30m", "--wait")
    yield Path(place.view(said.stdout.split()[0])["folder"])
    place.torusrun("cancel", said.stdout.split()[0])


ON_TERMINAL = (
    "import os, pty, sys; words = [sys.executable, '-m', 'torusrun', *sys.argv[1:]]; "
    "sys.exit(os.waitstatus_to_exitcode(pty.spawn(words)))"
)


def submit(place: Place, held: Path, script: str) -> Path:
    return place.submit_script(script, "--in", held.name)


def test_attempts_run_one_after_the_other_in_one_job(place: Place, held: Path) -> None:
    first = submit(place, held, WAITS)
    second = submit(place, held, "echo $TORUSRUN_RUN $RANK")
    host = started(first, 3)["host"]
    assert "is at work" in place.view(held)["reason"]
    waits = place.view(second)
    assert waits["state"] == "PENDING" and f"waits in {held.name} for {first.name}" in waits["reason"], waits
    says = 'echo "$RANK" at "$(hostname)"; echo aside >&2; exit 7'
    said = place.torusrun("shell", first.name, "--rank", "3", "--", "sh", "-c", says)
    assert said.returncode == 7 and said.stdout.split() == ["3", "at", host], said
    assert "aside" in said.stderr.splitlines()
    said = place.run(["python", "-c", ON_TERMINAL, "shell", first.name, "--rank", "3", "--", "sh", "-c", "tty; exit 5"])
    assert said.returncode == 5 and "/dev/pts/" in said.stdout, said
    stays = ["shell", first.name, "--", "sh", "-c", f"touch here; {WAITS}"]
    client = place.start(["python", "-m", "torusrun", *stays])
    until((first / "attempts/1/here").exists, "the shell to be there")
    client.terminate()
    client.wait()
    place.release(first)
    assert place.watch(first).returncode == 0, "a client that ends must not end the run beside which its shell was"
    assert place.watch(second).returncode == 0, place.view(second)
    assert (second / "attempts/1/logs/rank-0002.log").read_text().split() == [second.name, "2"]
    jobs = {row["job"] for run in (held, first, second) for row in ledger(run, "started")}
    assert len(jobs) == 1, "they must all have run in the job that holds"
    assert ledger(first, "ended")[-1]["t"] <= ledger(second, "started")[-1]["t"], "two attempts ran at once"


def test_an_attempt_that_is_cancelled_or_fails_leaves_the_allocation(place: Place, held: Path) -> None:
    first, second, third = (submit(place, held, script) for script in (WAITS, WAITS, "exit 3"))
    started(first)
    for run in (second, first):
        assert place.torusrun("cancel", run.name).returncode == 0
    assert place.watch(third).returncode == 1
    views = [place.view(run) for run in (first, second, third)]
    assert [view["state"] for view in views] == ["CANCELLED", "CANCELLED", "FAILED"], views
    assert not (second / "attempts/1/ranks").exists(), "it was cancelled before it began"
    said = place.torusrun("shell", held.name, "--", "sh", "-c", "echo $RANK")
    assert said.returncode == 0 and said.stdout.strip() == "0", said.stderr
    resumed = place.torusrun("resume", third.name, "--in", held.name, "--wait")
    assert resumed.returncode == 1 and place.view(third)["attempt"] == 2, resumed.stderr
    assert place.view(held)["state"] == "RUNNING"


def test_what_does_not_fit_is_refused_and_leaves_no_run(place: Place, held: Path) -> None:
    only_on(place, "local")
    place.write_script("true")
    before = set(held.parent.iterdir())
    said = place.torusrun(
        "submit", "script.yaml", "--in", held.name, "--set", "ranks_per_node=64", "--set", "grid=auto"
    )
    assert said.returncode == 2 and "64 ranks per node" in said.stderr, said.stderr
    assert set(held.parent.iterdir()) == before


def test_an_idle_allocation_is_given_back_and_takes_nothing_more(place: Place) -> None:
    only_on(place, "local", "slurm")
    place.write_script("true")
    said = place.torusrun("hold", "script.yaml", "--time", "5m", "--idle", "1s", "--name", "idle", "--wait")
    held = Path(place.view(said.stdout.split()[0])["folder"])
    view = until(lambda: (v := place.view(held))["state"] in OVER and v, "the idle allocation to end")
    assert view["state"] == "COMPLETED" and "no attempt came for 1 s" in view["reason"], view
    refused = place.torusrun("submit", "script.yaml", "--in", held.name)
    assert refused.returncode == 2 and "no attempt can be started in it" in refused.stderr


def test_cancelling_the_allocation_ends_what_runs_and_waits_in_it(place: Place) -> None:
    place.write_script("true")
    said = place.torusrun("hold", "script.yaml", "--time", "30m", "--name", "given-up", "--wait")
    held = Path(place.view(said.stdout.split()[0])["folder"])
    first, second = (submit(place, held, WAITS) for _ in range(2))
    started(first)
    assert place.torusrun("cancel", held.name).returncode == 0
    until(lambda: place.view(held)["state"] in OVER, "the allocation to end")
    states = [place.view(run)["state"] for run in (held, first, second)]
    assert states == ["CANCELLED"] * 3, [place.view(run) for run in (held, first, second)]
