"""The copies in the memory of a job's hosts are removed with its last attempt, and those of a newer attempt stay."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torusrun.orchestrator.base.json_files import write_json, write_text
from torusrun.orchestrator.job import copies
from torusrun.orchestrator.run.attempts import create
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.events import Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import attempt_plan
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.training.checkpoint import node_memory

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
def run(home: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
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


def memory_of(run: RunFolder) -> Path:
    folder = node_memory.of_run(run.run_id, run.checkpoints)
    node_memory.make(folder)
    (folder / "0.0").write_bytes(b"state")
    return folder


def test_the_copies_on_all_hosts_of_the_job_are_removed(run: RunFolder, home: Path) -> None:
    folder = memory_of(run)
    copies.remove(run, 1, lost=["n2"])
    assert not folder.exists() and not folder.parent.exists(), "the folder of the user is left without a run"
    assert (home / "reached").read_text() == "--nodelist=n3\n", "each host but this one and the lost ones"


def test_copies_of_a_newer_attempt_stay(run: RunFolder, home: Path) -> None:
    folder = memory_of(run)
    write_text(run.current, "2\n")
    copies.remove(run, 1)
    assert folder.exists() and not (home / "reached").exists()


def test_hosts_have_copies_of_which_this_one_has_none(run: RunFolder, home: Path) -> None:
    copies.remove(run, 1)
    reached = sorted((home / "reached").read_text().split())
    assert reached == ["--nodelist=n2", "--nodelist=n3"], "this host may have had no room"


def test_after_a_training_that_is_done_no_host_is_queried(run: RunFolder, home: Path) -> None:
    write_json(run.attempt(1).done, {"schema": 1, "attempt": 1, "step": 40})
    folder = memory_of(run)
    copies.remove(run, 1)
    assert folder.exists() and not (home / "reached").exists(), "the ranks have removed theirs"


def test_a_host_that_does_not_answer_is_named_and_holds_nothing_up(
    run: RunFolder, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(copies, "LIMIT_S", 0.0)
    (home / "bin/srun").write_text("#!/bin/sh\nexec sleep 600\n")
    memory_of(run)
    copies.remove(run, 1)
    assert "may be left in the memory of n2, n3" in capsys.readouterr().err


def test_few_of_many_hosts_are_reached_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "MOST_AT_ONCE", 2)
    command = ["sh", "-c", f"mkdir {tmp_path}/$$; set -- {tmp_path}/*; rmdir {tmp_path}/$$; test $# -le 2"]
    assert copies._not_reached({**{f"n{n}": command for n in range(6)}, "n6": ["false"]}) == ["n6"]
