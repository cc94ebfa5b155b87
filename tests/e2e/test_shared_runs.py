"""A run that its user's group may read: the modes of all its files, and the rights of another member of the group."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import machine
from tests.e2e.places import ROOT, Local

READER, GROUP = 4321, 4322
RUN = """name: shared
site: site.yaml
code: none
command: [sh, -c, 'echo "rank $RANK says hello"; echo made > made-by-rank-$RANK; sleep 1']
"""
FOLDERS = {"", "attempts", "attempts/1", "attempts/1/logs", "attempts/1/ranks", "checkpoints"}
OWNERS = {"attempts/1/launch.json", "attempts/1/rendezvous.json", "attempts/1/alive", ".current"}
OF_RANKS = {
    name.format(rank)
    for name in (
        "ranks/{:04d}.start.json", "ranks/{:04d}.end.json", "logs/rank-{:04d}.log", "logs/rank-{:04d}.log.times",
        "made-by-rank-{}",
    )
    for rank in (0, 1)
}  # fmt: skip
OF_JOB = {"job.sh", "job.out", "job.err", "job.out.times", "job.err.times"}
OF_ATTEMPT = {"plan.json", "placement.json", "hostfile", "pulse", "in_job.json", "end.json"} | OF_JOB | OF_RANKS
LATER = ("attempts/1/ranks/0000.load.json", "attempts/1/ranks/probe")  # in an attempt of a second or more
GROUPS = {"run.yaml", "plan.json", "provenance.json", "ledger.jsonl"} | {f"attempts/1/{name}" for name in OF_ATTEMPT}


@pytest.fixture(scope="module")
def here() -> Iterator[Local]:
    """This machine, in a folder that every user can reach; for root, its folder of runs belongs to a group."""
    folder = Path(tempfile.mkdtemp(prefix="torusrun-shared-"))
    folder.chmod(0o755)
    local = Local(folder)
    local.site("site.yaml", umask="027", node="{ranks: 2, interface: lo}")
    local.put("run.yaml", RUN)
    if not machine.why_not("users"):
        (folder / "runs").mkdir()
        os.chown(folder / "runs", -1, GROUP)
        (folder / "runs").chmod(0o2750)
    yield local
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def run(here: Local) -> Path:
    said = here.succeeds("submit", "run.yaml", "--wait")
    return here.runs / said.stdout.split()[0]


def test_the_group_may_read_all_of_a_run_but_its_secrets(run: Path) -> None:
    modes = {str(path.relative_to(run)): stat.S_IMODE(path.stat().st_mode) & 0o777 for path in run.rglob("*")}
    modes[""] = stat.S_IMODE(run.stat().st_mode) & 0o777
    assert {modes.pop(name, 0o640) for name in LATER} == {0o640}
    assert modes == {**dict.fromkeys(FOLDERS, 0o750), **dict.fromkeys(GROUPS, 0o640), **dict.fromkeys(OWNERS, 0o600)}


def as_reader(here: Local, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program as another user, who is in the group of the folder of runs."""
    return subprocess.run(
        ["setpriv", "--reuid", str(READER), "--regid", str(READER), "--groups", str(GROUP), *words],
        cwd="/", env={**here.env, "HOME": f"{here.folder}/reader"}, text=True, capture_output=True, timeout=60,
    )  # fmt: skip


@pytest.mark.needs("users")
def test_another_user_of_the_group_reads_the_run_and_changes_nothing(here: Local, run: Path) -> None:
    (here.folder / "reader").mkdir()
    os.chown(here.folder / "reader", READER, READER)
    if as_reader(here, sys.executable, "-c", f"open({str(ROOT / 'orchestrator/cli/main.py')!r})").returncode:
        pytest.skip("another user reaches neither this Python nor this checkout")

    def torusrun(verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return as_reader(here, sys.executable, "-m", "torusrun", verb, str(run), *words)

    assert torusrun("logs").stdout == "rank 0 says hello\n"
    assert "1 | rank 1 says hello" in torusrun("logs", "--all").stdout
    assert "COMPLETED" in torusrun("status").stdout
    watched = torusrun("watch")
    assert watched.returncode == 0 and "all 2 ranks ended well" in watched.stdout, watched.stderr
    into = here.folder / "reader" / "kept"
    collected = torusrun("collect", str(into))
    assert collected.returncode == 0 and "launch.json: left out: Permission denied" in collected.stderr
    assert (into / "attempts/1/logs/rank-0001.log").stat().st_mode & 0o077 == 0, "what he collects is his alone"
    for verb in ("cancel", "resume"):
        said = torusrun(verb)
        assert said.returncode == 2 and "you can only look at it" in said.stderr
    for name in OWNERS:
        assert "Permission denied" in as_reader(here, "cat", str(run / name)).stderr
    assert as_reader(here, "touch", str(run / "planted")).returncode != 0
