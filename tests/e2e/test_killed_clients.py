"""A client killed at any system call loses no run, doubles none, and leaves nothing that is not reported or cleaned.

strace delivers SIGKILL at the entry of the n-th call of a kind, for every call that changes names, and for some of the
others that change a file, start a process or wait for one. `TORUSRUN_ALL_CALLS=1` tries them all. The jobs run a
program that only records its start.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.e2e import processes
from tests.e2e.places import ROOT, until

pytestmark = [pytest.mark.lab, pytest.mark.needs("strace")]

CALLS = (
    "mkdir,symlink,rename,unlink,rmdir,openat,write,ftruncate,chmod,fchmod,fsync,flock,fcntl,vfork,fork,clone,clone3,"
    "poll,wait4,exit_group"
)
AT_SUBMIT = 'case "$*" in *find_spec*) exit;; esac'  # the look for packages starts no job
CHANGE_NAMES = {"mkdir", "symlink", "rename", "unlink", "rmdir", "fork", "vfork", "clone", "clone3"}
OTHERS_TRIED = 3  # one in so many of the other calls
AT_ONCE = 3
FIRST_CHANGE = re.compile(r'^(mkdir\(".*/\.local|flock|fcntl\(\d+, F_SETLK)')


class Desk:
    """A home with a site whose jobs only record their start, and a run that can be submitted there."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.runs, self.notes = folder, folder / "runs", folder / "started"
        (folder / "python").write_text(f'#!/bin/sh\n{AT_SUBMIT}\necho "$*" >> {self.notes}\n')
        (folder / "python").chmod(0o755)
        site = f"scheduler: local\nlauncher: spawn\npython: {folder}/python\nruns: {self.runs}\nstop_before: 1s\n"
        (folder / "site.yaml").write_text(site)
        (folder / "run.yaml").write_text("name: killed\nsite: ./site.yaml\ntrain: {}\n")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        self.env = {**kept, "HOME": str(folder), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}

    def torusrun(self, *words: str, under: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        argv = [*under, sys.executable, "-m", "torusrun", *words]
        return subprocess.run(argv, cwd=self.folder, env=self.env, text=True, capture_output=True, timeout=120)

    def killed(self, call: str, number: int, *words: str) -> None:
        """Run `torusrun WORDS`, killed at the entry of its n-th system call of this kind."""
        inject = f"inject={call}:signal=SIGKILL:when={number}"
        self.torusrun(*words, under=["strace", "-o", os.devnull, "-e", f"trace={call}", "-e", inject])

    def started(self) -> list[str]:
        """The folders of the attempts with begun jobs, one entry for each begin."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [line.split()[-1] for line in lines]

    def status(self) -> list[dict[str, object]]:
        said = self.torusrun("status", "--json")
        assert said.returncode == 0, said.stderr
        found: list[dict[str, object]] = json.loads(said.stdout)["runs"]
        return found

    def submitted(self) -> str:
        """A run whose first attempt is over."""
        assert self.torusrun("submit", "run.yaml").returncode == 0
        until(lambda: self.status()[0]["state"] == "FAILED", "the job that only notes its start to end")
        return str(self.status()[0]["run"])


def tried(points: Sequence[tuple[str, int]], chance: Random) -> list[tuple[str, int]]:
    """The points at which a client is killed."""
    every = os.environ.get("TORUSRUN_ALL_CALLS") == "1"
    return [point for point in points if every or point[0] in CHANGE_NAMES or chance.randrange(OTHERS_TRIED) == 0]


def points(folder: Path, *words: str) -> list[tuple[str, int]]:
    """Every (system call, n) of an undisturbed `torusrun WORDS` that has an effect, from its first change on."""
    trace = folder / "trace"
    desk = Desk(folder / "undisturbed")
    given = [desk.submitted()] if words[0] == "resume" else []
    said = desk.torusrun(*words, *given, under=["strace", "-o", str(trace), "-e", f"trace={CALLS}"])
    assert said.returncode == 0, said.stderr
    counts: Counter[str] = Counter()
    found: list[tuple[str, int]] = []
    begun = False
    for line in trace.read_text().splitlines():
        name = line.partition("(")[0]
        if not name.isidentifier():
            continue  # a signal, or the end
        counts[name] += 1
        begun = begun or bool(FIRST_CHANGE.match(line))
        if begun and not (name == "openat" and "O_CREAT" not in line):
            found.append((name, counts[name]))
    assert len(found) > 20, "the trace must show the changes that were made"
    return found


def told_truly(desk: Desk, what: str) -> list[dict[str, object]]:
    """The runs that `torusrun status` shows, which are those that are there, two minutes after the client's death."""
    place = desk.folder / ".local/state/torusrun/runs"
    for link in place.glob("*"):  # a young one may be of a run that this machine does not see yet
        os.utime(link, (1, 1), follow_symlinks=False)
    starts, runs = Counter(desk.started()), desk.status()
    assert not [one for one, times in starts.items() if times > 1], f"{what}: an attempt was started twice: {starts}"
    told = {str(run["folder"]) for run in runs}
    lost = [one for one in starts if str(Path(one).parents[1]) not in told]
    assert not lost, f"{what}: {lost} run, and `torusrun status` does not show them"
    there = {str(entry) for entry in desk.runs.iterdir()} if desk.runs.exists() else set()
    assert there == told, f"{what}: left behind and not told of: {there - told}; told of and not there: {told - there}"
    links = {link.name for link in place.glob("*")}
    assert links == {str(run["run"]) for run in runs}, f"{what}: the index does not fit"
    for run in runs:
        assert run["state"] != "COMPLETED" and run["reason"], f"{what}: {run}"
    return runs


def assert_goes_on(desk: Desk, what: str) -> None:
    """A run that is over can be resumed; if a run may have a job, the user gets advice on how to find it."""
    for run in told_truly(desk, what):
        said = desk.torusrun("resume", str(run["run"]))
        assert "Traceback" not in said.stderr
        if said.returncode != 0:
            assert said.returncode == 2 and run["state"] in ("UNKNOWN", "PENDING", "RUNNING"), f"{what}: {said.stderr}"
    attempts = desk.started()
    assert len(attempts) == len(set(attempts)), f"{what}: an attempt was started twice: {attempts}"


@pytest.mark.parametrize("words", [("submit", "run.yaml"), ("resume",)], ids=["submit", "resume"])
def test_a_client_killed_at_a_call_that_changes_something(
    words: tuple[str, ...], tmp_path: Path, chance: Random
) -> None:
    all_points = points(tmp_path, *words)
    wanted = tried(all_points, chance)

    def kill(point: tuple[str, int]) -> tuple[str, Desk]:
        desk = Desk(tmp_path / f"{point[0]}-{point[1]}")
        given = [desk.submitted()] if words[0] == "resume" else []
        desk.killed(*point, *words, *given)
        return f"killed at {point[0]} number {point[1]} of {len(all_points)} calls", desk

    with ThreadPoolExecutor(AT_ONCE) as pool:
        desks = list(pool.map(kill, wanted))
        here = {processes.namespace(): "this machine"}
        until(lambda: not processes.of_run(tmp_path, here), "the jobs of dead clients to record their start")
        list(pool.map(lambda pair: assert_goes_on(pair[1], pair[0]), desks))
    assert any(desk.started() for _, desk in desks), "some clients must have come far enough to start a job"


def test_three_resumes_at_once_make_one_attempt(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    run = desk.submitted()
    with (desk.folder / "python").open("a") as program:
        # Another attempt may follow an ended one at once. It waits, but not for ever if this test fails.
        program.write(f"for second in $(seq 300); do test -e {desk.folder}/enough && exit; sleep 1; done\n")
    with ThreadPoolExecutor(3) as pool:
        codes = sorted(said.returncode for said in pool.map(lambda _: desk.torusrun("resume", run), range(3)))
    until(lambda: len(desk.started()) > 1, "the second attempt to begin")
    (desk.folder / "enough").touch()
    assert codes.count(0) == 1 and set(codes) <= {0, 2}, f"exit codes {codes}"
    made = [path.name for path in (desk.runs / run / "attempts").iterdir()]
    assert sorted(made) == sorted(Path(one).name for one in desk.started()) == ["1", "2"]
