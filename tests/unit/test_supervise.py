"""Attempts on this machine from their job's entry to their end: one for each way to end, all at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.attempts import create
from torusrun.orchestrator.run.attempts.script import script
from torusrun.orchestrator.run.folder import claim, ledger
from torusrun.orchestrator.run.folder.events import CancelRequested, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.plan import plan

SITE = f"""scheduler: local
launcher: spawn
node: {{{{ranks: 2, interface: lo}}}}
python: {sys.executable}
runs: {{home}}/runs
stop_before: 58s
"""
RUN = "name: {name}\nsite: ./site.yaml\ncode: none\ntime: {time}\ncommand: [sh, -c, '{command}']\n"


class Case(NamedTuple):
    """What the ranks run, for how long, what was there before, and the end that is expected."""

    command: str
    state: State
    says: str
    time: str = "10m"
    before: Callable[[RunFolder], object] = lambda run: None


CASES = {
    "well": Case("exit 0", State.COMPLETED, "all 2 ranks ended well"),
    "badly": Case("exit $((RANK * 3))", State.FAILED, "rank 1 ({host}, local rank 1) ended with exit code 3"),
    "limit": Case("exec sleep 1000", State.TIMEOUT, "its time limit of 60 s is near", time="60s"),
    "cancelled": Case(
        "exec sleep 1000", State.CANCELLED, "cancelled by its user",
        before=lambda run: ledger.append(run.ledger, CancelRequested(1)),
    ),
    "superseded": Case(
        "touch started", State.CANCELLED, "attempt 2 of this run has begun", before=lambda run: claim.take(run, 2)
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    home, jobs, runs = tmp_path_factory.mktemp("home"), [], dict[str, RunFolder]()
    (home / "site.yaml").write_text(SITE.format(home=home))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        for name, case in CASES.items():
            (home / "run.yaml").write_text(RUN.format(name=name, **case._asdict()))
            first = AttemptPlan(1, plan(home / "run.yaml"))
            runs[name] = RunFolder(first.plan.folder)
            attempt = runs[name].attempt(1)
            create.run(first, home, script(first, attempt), Submitting(1, first.plan.run_id))
            case.before(runs[name])
            argv = [sys.executable, "-m", "torusrun.orchestrator.job.supervise", str(attempt.folder)]
            jobs.append(subprocess.Popen(argv, env={**os.environ}, stdout=subprocess.DEVNULL))
    for job in jobs:
        job.wait()
    return runs


@pytest.mark.parametrize("name", CASES)
def test_an_attempt_ends_as_its_ranks_and_its_user_say(name: str, ended: dict[str, RunFolder]) -> None:
    end, case = End.read(ended[name].attempt(1).end), CASES[name]
    assert end and end.state is case.state, end
    assert case.says.format(host=os.uname().nodename) in end.reason


def test_an_attempt_that_may_not_begin_starts_nothing(ended: dict[str, RunFolder]) -> None:
    assert not ended["superseded"].attempt(1).ranks.exists() and not list(ended["superseded"].folder.rglob("started"))
    kinds = [event.kind for event in ledger.events(ended["superseded"].ledger)]
    assert kinds == ["submitting", "ended"]
