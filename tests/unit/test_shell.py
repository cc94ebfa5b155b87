"""Shells beside ranks: how each scheduler gets there, and what the shell is given."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.run_folders import make, write_specs
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import _parse, main
from torusrun.orchestrator.images.runtime import Runtime
from torusrun.orchestrator.job.ranks.beside_rank import beside
from torusrun.orchestrator.job.start.launch_order import RankImage, ordered
from torusrun.orchestrator.run.folder.allocation import KeeperState
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.schedulers.client import ssh

WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), min_size=1)


@given(WORDS)
def test_a_command_stays_the_words_that_it_was(words: list[str]) -> None:
    slurm = schedulers.get("slurm").reach.shell_command("7", "n3", words, terminal=False)
    assert slurm[-len(words) :] == words
    assert shlex.split(ssh("n3", words, terminal=False)[-1]) == words
    local = schedulers.get("local").reach.shell_command("7.1", "here", words, terminal=True)
    assert local == words


def test_slurm_is_asked_for_a_terminal_and_the_others_jobs_start_one() -> None:
    command = schedulers.get("slurm").reach.shell_command("7", "n3", ["w"], terminal=True)
    assert {"--pty", "--overlap", "--nodelist=n3"} <= set(command)
    assert [name for name in schedulers.KNOWN if schedulers.get(name).reach.from_inside] == ["pbs", "gridengine"]


@pytest.fixture
def run(home: Path) -> RunFolder:
    """A run whose rank 2 has this process for its wrapper."""
    made = make(write_specs(home), End(State.COMPLETED, "all 4 ranks ended well"))
    attempt = made.attempt(1)
    attempt.rank_end(2).unlink()
    write_json(attempt.rank_start(2), {"rank": 2, "host": "here", "wrapper": os.getpid()})
    return made


def test_a_shell_has_the_variables_of_its_rank(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "of-the-user")
    launch = json.loads(run.attempt(1).launch.read_text())
    argv, environment, folder = beside(run.attempt(1), 2, ["w"])
    assert argv == ["w"] and folder == str(run.attempt(1).folder)
    assert {**environment, **launch["roles"][0]["program"]["environment"]} == environment, "what the program is given"
    assert (environment["RANK"], environment["LOCAL_RANK"], environment["WORLD_SIZE"]) == ("2", "2", "4")
    assert environment["PATH"] == os.environ["PATH"] and environment["TERM"] == "of-the-user"


def test_a_shell_finds_no_program_in_its_working_directory(run: RunFolder) -> None:
    launch = json.loads(run.attempt(1).launch.read_text())
    launch["roles"][0]["program"]["environment"] |= {"PATH": ":bin:/usr/bin", "PYTHONPATH": "lib:/opt/lib"}
    write_json(run.attempt(1).launch, launch)
    _, environment, _ = beside(run.attempt(1), 2, ["w"])
    assert (environment["PATH"], environment["PYTHONPATH"]) == ("/usr/bin", "/opt/lib")


def test_a_shell_sees_what_its_rank_wrote_into_the_image_and_cannot_change_it(run: RunFolder, home: Path) -> None:
    attempt, runtime = run.attempt(1), Runtime("apptainer", "apptainer", (1, 4, 5))
    image = RankImage(runtime, "/c/x.sif", writable=str(home / "disk"), sha256="0" * 64)
    order, _ = ordered(attempt)
    roles = (replace(order.roles[0], container=image),)
    write_json(attempt.launch, replace(order, roles=roles).as_json())
    argv, _, _ = beside(attempt, 2, ["w"])
    written = home / "disk" / f"torusrun-{os.geteuid()}" / run.run_id / "0002"
    assert argv[argv.index("--overlay") + 1] == f"{written}:ro" and argv[-2:] == ["/c/x.sif", "w"]


def test_no_shell_opens_for_a_rank_that_has_ended_or_has_not_started(run: RunFolder) -> None:
    with pytest.raises(SiteError, match="rank 1 has ended"):
        beside(run.attempt(1), 1, ["w"])
    gone = subprocess.Popen(["true"])
    gone.wait()
    write_json(run.attempt(1).rank_start(2), {"rank": 2, "host": "here", "wrapper": gone.pid})
    with pytest.raises(SiteError, match="is not at work on"):
        beside(run.attempt(1), 2, ["w"])
    run.attempt(1).rank_start(2).unlink()
    with pytest.raises(SiteError, match="rank 2 has not started yet"):
        beside(run.attempt(1), 2, ["w"])


def test_a_shell_in_a_held_allocation_has_what_its_keeper_has(run: RunFolder) -> None:
    state = KeeperState(os.getpid(), socket.gethostname(), time.time() + 60, 60.0, time.time())
    state.write(run.attempt(1))
    assert beside(run.attempt(1), 0, ["w"])[1]["RANK"] == "0"


def test_a_run_that_is_over_has_no_shell(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shell", run.run_id, "--rank", "3", "--", "ls", "--all"]) == 2
    assert "is COMPLETED" in capsys.readouterr().err


def test_what_follows_two_dashes_is_the_command() -> None:
    parsed = _parse(["shell", "x", "--rank", "3", "--", "ls", "--", "-l"])
    assert (parsed.run_id, parsed.rank, parsed.command) == ("x", 3, ["ls", "--", "-l"])
    assert _parse(["shell", "x"]).command == []
