"""Any file of a run damaged in any way: every verb that reads says so in words, in time, and never lies about it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.unit import damage
from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.verbs import Capsys, Patch
from tests.waiting import until
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder

VERB_S = 120
MEMORY_BYTES = 600 << 20
Way = Callable[[Path, bytes], None]
FAILED = End(State.FAILED, "rank 1 (here, local rank 1) was killed by SIGKILL after step 40", certain=False)
FILES = [
    "plan.json", "ledger.jsonl", "metrics.jsonl", "provenance.json", "image.json", "run.yaml", "attempts",
    "checkpoints", "attempts/1", *(f"attempts/1/{name}" for name in (
        "plan.json", "job.sh", "job.out", "job.err", "end.json", "done.json", "placement.json", "launch.json",
        "config.json", "rendezvous.json", "logs", "logs/rank-0000.log", "ranks", "ranks/0000.start.json",
        "ranks/0000.end.json",
    )),
    "checkpoints/step-00000040", "checkpoints/step-00000040/manifest.json", "checkpoints/step-00000040/state.pt",
]  # fmt: skip


class Hang(BaseException):
    """A verb that took longer than VERB_S."""


@dataclass
class Desk:
    """A home with a completed run, a failed one and a third that is never damaged."""

    home: Path
    capsys: Capsys
    completed: RunFolder
    failed: RunFolder
    healthy: RunFolder

    @contextmanager
    def damaged(self, way: Way, runs: Sequence[RunFolder], *names: str) -> Iterator[None]:
        """Within, these files of these runs are damaged. The ledger may get an end: it is restored with them."""
        try:
            for path in (run.folder / name for run in runs for name in names):
                damage.do(way, path)
            yield
        finally:
            for run in runs:
                for name in {*names, "ledger.jsonl"}:
                    self._restore(f"{run.run_id}/{name}")

    def _restore(self, name: str) -> None:
        path, kept = self.home / "runs" / name, self.home / "kept" / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        shutil.copytree(kept, path) if kept.is_dir() else shutil.copy(kept, path)

    @contextmanager
    def restored(self, run: RunFolder) -> Iterator[None]:
        """After it, the run is as it was before."""
        try:
            yield
        finally:
            self._restore(run.run_id)

    def say(self, *words: str) -> tuple[int, str, str]:
        """A verb in this process: (exit code, stdout, stderr). Whatever a user should never see fails."""

        def hang(number: int, frame: FrameType | None) -> None:
            raise Hang(f"{words} took longer than {VERB_S} s")

        signal.signal(signal.SIGALRM, hang)
        signal.alarm(VERB_S)
        try:
            code = main(list(words))
        finally:
            signal.alarm(0)
        said = self.capsys.readouterr()
        shown = said.out + said.err
        assert code in (0, 1, 2, 3), f"{words}: exit code {code}: {shown[-500:]}"
        assert "Traceback" not in shown and "defect of torusrun" not in shown, f"{words}: {shown[-2000:]}"
        return code, said.out, said.err

    def state(self, run: RunFolder) -> dict[str, Any]:
        shown = json.loads(self.say("status", str(run.folder) + "/", "--json")[1])["runs"][0]
        assert isinstance(shown["damaged"], list)
        return shown


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunFolder, RunFolder, RunFolder]:
    """A home and its runs, made once, with a copy of them from which every test restores what it damages."""
    home = tmp_path_factory.mktemp("damaged")
    with pytest.MonkeyPatch.context() as patch:
        at_home(home, patch)
        spec = write_specs(home)
        runs = make(spec, DONE), make(spec, FAILED), make(spec, DONE)
    shutil.copytree(home / "runs", home / "kept")
    return home, *runs


def at_home(home: Path, patch: Patch) -> None:
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        patch.delenv(variable, raising=False)
    patch.setenv("HOME", str(home))


@pytest.fixture
def desk(made: tuple[Path, RunFolder, RunFolder, RunFolder], capsys: Capsys, monkeypatch: Patch) -> Iterator[Desk]:
    home, *runs = made
    at_home(home, monkeypatch)
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + MEMORY_BYTES, hard))
    yield Desk(home, capsys, *runs)
    resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def verbs(run: RunFolder, into: Path) -> list[list[str]]:
    """Every verb that reads this run and does not begin another attempt of it."""
    named = [["status", run.run_id], ["watch", run.run_id], ["logs", run.run_id], ["cancel", run.run_id]]
    return [*named, ["logs", run.run_id, "--all"], ["logs", run.run_id, "--errors"], ["collect", run.run_id, str(into)]]


@pytest.mark.parametrize("name", FILES)
def test_status_shows_a_damaged_run_and_all_others(name: str, desk: Desk) -> None:
    """Each verb meets every way in a third of the files, in one of two runs with the same damage."""
    both = {desk.completed: "COMPLETED", desk.failed: "FAILED"}
    states = {run: state for run, state in both.items() if (run.folder / name).exists()}  # who failed is not done
    runs, into = list(states), desk.home / "collected"
    for number, way in enumerate(damage.WAYS, FILES.index(name)):
        with desk.damaged(way, runs, name):
            listed = {view["run"]: view for view in json.loads(desk.say("status", "--json")[1])["runs"]}
            assert listed[desk.healthy.run_id]["damaged"] == [], way
            for run, state in states.items():
                assert listed[run.run_id]["state"] == state, (way, listed[run.run_id])
            for words in verbs(runs[number % len(runs)], into)[number % 3 :: 3]:
                desk.say(*words)
            if number % 3 == 0:
                assert desk.say("resume", desk.completed.run_id)[0] in (2, 3), way
                assert {run.run_id for run in (*both, desk.healthy)} <= {*desk.say("status")[1].split()}, way
        shutil.rmtree(into, ignore_errors=True)
    assert not list(desk.home.glob(".torusrun-*")), "a collecting that failed must leave nothing"


@pytest.mark.parametrize("name", ["plan.json", "ledger.jsonl", "attempts/1/end.json"])
def test_damage_of_a_record_is_named(name: str, desk: Desk) -> None:
    for way in damage.WAYS:
        if name == "attempts/1/end.json" and way in (damage.missing, damage.huge_numbers):
            continue  # an end that only the scheduler knew leaves no record either, and this one has no number
        with desk.damaged(way, [desk.completed], name):
            texts = desk.state(desk.completed)["damaged"]
            assert any(text.startswith(f"{name}: ") for text in texts), (way, texts)
            assert "damaged: " in desk.say("status", desk.completed.run_id)[1]


@pytest.mark.parametrize(
    "names",
    [["plan.json", "attempts/1/plan.json"], ["ledger.jsonl", "attempts/1/end.json"], ["ledger.jsonl", "attempts"]],
    ids=" ".join,
)
def test_no_damage_makes_a_failed_run_completed(names: list[str], desk: Desk) -> None:
    for way in damage.WAYS:
        with desk.damaged(way, [desk.failed], *names):
            assert desk.state(desk.failed)["state"] in ("FAILED", "UNKNOWN", "LOST"), (names, way)


@pytest.mark.parametrize("name", ["plan.json", "ledger.jsonl", "image.json", "attempts/1/plan.json"])
@pytest.mark.parametrize("way", [damage.missing, damage.nul_bytes, damage.wrong_types, damage.fifo])
def test_a_failed_run_resumes_or_says_why_it_does_not(name: str, way: Way, desk: Desk) -> None:
    with desk.restored(desk.failed), desk.damaged(way, [desk.failed], name):
        if desk.say("resume", desk.failed.run_id)[0] == 0:
            until(desk.failed.attempt(2).end.exists, "the job to end: until then it writes into the folder")
        assert desk.state(desk.failed)["state"] != "COMPLETED"
