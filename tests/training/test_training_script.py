"""`torusrun.Checkpoints` in a script of a user's own: what is killed or stopped continues with the same bits."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy
import pytest
import torch
from forked_rank import ForkedRank
from states import differing
from training_runs import LIMIT_S, ROOT

from torusrun.training.checkpoint import writer
from torusrun.training.checkpoint.manifest import newest_complete, verify
from torusrun.training.script import checkpoints as of_script
from torusrun.training.script.checkpoints import Checkpoints

STEPS, EVERY = 45, 7
SEED = time.time_ns() % 100_000


class Attempt:
    """The ranks of a script with checkpoints in a folder, and their output."""

    def __init__(self, folder: Path, name: str, *, ranks: int = 2, **settings: Any) -> None:
        known = {"folder": str(folder / "checkpoints"), "meet": str(folder / f"{name}.meet")}
        usual = {"steps": STEPS, "every": EVERY, "signals": [], "stops_writer": False}
        path = folder / f"{name}.json"
        path.write_text(json.dumps({**known, **usual, **settings}))
        here = Path(__file__).parent
        environment = {
            **os.environ, "PYTHONPATH": f"{ROOT}/training/entry:{here}", "WORLD_SIZE": str(ranks),
        }  # fmt: skip
        self.logs = [folder / f"{name}.{rank}.log" for rank in range(ranks)]
        self.ranks = [
            ForkedRank("script_ranks", path, log, {**environment, "RANK": str(rank)})
            for rank, log in enumerate(self.logs)
        ]

    def codes(self) -> list[int]:
        return [rank.wait(LIMIT_S) for rank in self.ranks]

    @property
    def said(self) -> str:
        return "".join(log.read_text() for log in self.logs if log.exists())

    def end(self) -> None:
        for rank in self.ranks:
            rank.kill()


@contextmanager
def attempt(folder: Path, name: str, **settings: Any) -> Iterator[Attempt]:
    folder.mkdir(exist_ok=True)
    made = Attempt(folder, name, **settings)
    try:
        yield made
    finally:
        made.end()


def last_state(folder: Path) -> Any:
    path = folder / f"checkpoints/step-{STEPS:08d}"
    verify(path)
    return torch.load(path / "state.pt", weights_only=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("undisturbed")
    with attempt(folder, "only") as ranks:
        assert ranks.codes() == [0, 0], ranks.said
    kept = sorted(path.name for path in (folder / "checkpoints").glob("step-*"))
    assert kept == ["step-00000035", "step-00000042", "step-00000045"], "the newest three stay"
    return last_state(folder)


@pytest.mark.parametrize(("who", "number"), [(0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGTERM)])
def test_a_disturbed_script_continues_with_the_same_bits(
    tmp_path: Path, undisturbed: Any, who: int, number: signal.Signals
) -> None:
    step = Random(SEED).randrange(EVERY + 1, STEPS - 2)
    with attempt(tmp_path, "first", signals=[(who, step, number)]) as first:
        codes = first.codes()
    stopped = number == signal.SIGTERM
    assert codes == [75, 75] if stopped else codes[who] == -number, f"seed {SEED}: {codes} {first.said}"
    with attempt(tmp_path, "second") as second:
        assert second.codes() == [0, 0], f"seed {SEED}: {second.said}"
    begun = {int(found) for found in re.findall(r"begins at (\d+)", second.said)}
    if stopped:
        assert {int(found) for found in re.findall(r"stops at (\d+)", first.said)} == begun, "all stop after one step"
        assert begun <= {step + 1}, "the request travels with the next step"
        assert "lacks its checkpoint" not in first.said, "launchers end all ranks once one has ended: each must wait"
    else:
        assert len(begun) == 1 and begun <= {step // EVERY * EVERY, (step - 1) // EVERY * EVERY}, f"seed {SEED}"
    found = differing(last_state(tmp_path), undisturbed)
    assert not found, f"seed {SEED}: not bit-identical to the undisturbed script in {found[:5]}"


def test_a_write_in_flight_is_completed_although_rank_0_is_killed(tmp_path: Path) -> None:
    killed = [(0, EVERY + 1, signal.SIGKILL)]
    with attempt(tmp_path, "first", ranks=1, stops_writer=True, signals=killed) as first:
        assert first.codes() == [-signal.SIGKILL], first.said
    assert "there are []" in first.said, "the writer was stopped too late for this test"
    with attempt(tmp_path, "second", ranks=1) as second:
        assert second.codes() == [0], second.said
    assert f"begins at {EVERY}" in second.said, "the kernel let the writer continue; the next attempt must wait for it"


def test_one_training_at_a_time_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_script, "LOCKED_S", 0.0)
    monkeypatch.setattr(writer, "END_S", LIMIT_S)
    first, second = (Checkpoints(model=torch.nn.Linear(2, 2), folder=tmp_path) for _ in range(2))
    steps(first, 1)
    with pytest.raises(RuntimeError, match="another training saves its checkpoints here"):
        second.resume()
    released, held = os.pipe()
    if not (worker := os.fork()):  # as one that loads data has everything open that the training has
        os.close(held)
        os.read(released, 1)
        os._exit(0)
    first.close()
    assert second.resume() == 1, "a process that the training has forked must not keep the folder"
    second.close()
    os.close(held)
    os.waitpid(worker, 0)


def steps(checkpoints: Checkpoints, last: int) -> None:
    for step in range(checkpoints.resume(), last):
        checkpoints.after_step(step + 1)


def test_a_full_disk_costs_checkpoints_and_the_last_one_is_missed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    checkpoints = Checkpoints(model=torch.nn.Linear(100, 100), folder=tmp_path, every=2, last=1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        checkpoints.resume()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for step in range(1, 5):
        checkpoints.after_step(step)
    with pytest.raises(OSError, match=r"the last checkpoint \(step 4\) could not be written: File too large"):
        checkpoints.close()
    said = capfd.readouterr().err.splitlines()
    assert said == [
        f"torusrun: {tmp_path}: the checkpoint of step {step} could not be written: File too large; "
        "newest complete checkpoint: none"
        for step in (2, 4)
    ]
    assert [path.name for path in tmp_path.iterdir()] == [".lock"], "half-written folders must be removed"


def test_a_run_gives_the_folder_the_interval_and_the_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end, kept = os.pipe()
    os.set_inheritable(kept, True)
    given = {
        "CHECKPOINTS": str(tmp_path / "run"), "HEARTBEAT": str(tmp_path / "beat"), "ATTEMPT": "3",
        "MEAN_TIME_TO_FAILURE_S": "1e-9", "STOP_SIGNAL": "SIGUSR1", "KEEP": f"{kept},999",
        "METRICS": str(tmp_path / "metrics"),
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(f"TORUSRUN_{name}", value)
    checkpoints = Checkpoints(model=torch.nn.Linear(2, 2), folder="elsewhere")
    steps(checkpoints, 51)
    assert (tmp_path / "beat").read_text() == "51", "after a save the step is written at once"
    os.close(kept)
    assert not select.select([end], [], [], 0)[0], "the process that writes must keep what it is given"
    signal.raise_signal(signal.SIGUSR1)
    checkpoints.after_step(52)
    assert checkpoints.asked_to_stop
    assert (tmp_path / "beat").read_text() == "checkpoint", "a last write that takes long is no hang"
    checkpoints.close()
    assert os.read(end, 1) == b"", "nobody has it open any more"
    os.close(end)
    found = newest_complete(tmp_path / "run")
    assert found and found.step == 52 and found.attempt == 3
    kept = sorted(path.name for path in (tmp_path / "run").glob("step-*"))
    assert kept[:2] == ["step-00000050", "step-00000051"], "at so many failures each step is saved after the first 50"
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    reported = [json.loads(line) for line in (tmp_path / "metrics").read_text().splitlines()]
    assert [row["step"] for row in reported] == [50, 51, 52] and reported[0]["checkpoint_s"] > 0


class Odd:
    def state_dict(self) -> dict[str, Any]:
        return {"made_of": Path}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Divided(torch.Tensor):
    """As DTensor."""


class Later(Odd):
    """What cannot be loaded again is in it after the first step."""

    best: Any = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}


def test_a_state_that_turns_odd_is_refused_before_it_is_saved(tmp_path: Path) -> None:
    later = Later()
    checkpoints = Checkpoints(scores=later, folder=tmp_path, every=1)
    checkpoints.resume()
    later.best = numpy.float64(0.5)
    with pytest.raises(ValueError, match="scores: its state_dict.. could not be loaded again: numpy"):
        checkpoints.after_step(1)
    later.best = torch.ones(2).as_subclass(Divided)
    with pytest.raises(ValueError, match="scores: .*it has a Divided"):
        checkpoints.after_step(2)
    later.best = torch.ones(2).to_sparse()
    with pytest.raises(ValueError, match="scores: .*it has a tensor with the layout torch.sparse_coo"):
        checkpoints.after_step(3)
    later.best = 0.5
    checkpoints.close()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "name the contents of a checkpoint"),
        ({"model": 3}, "model: a int has no state_dict"),
        ({"model": Odd(), "every": 0}, "every must be a whole number of at least 1, not 0"),
        ({"model": Odd()}, "outside of a run of torusrun, name a `folder`"),
        ({"model": Odd(), "folder": "new"}, "model: its state_dict() could not be loaded again: pathlib.Path; "),
        ({"model": torch.nn.Linear(2, 2), "folder": "foreign"}, "step-00000001: this is not a checkpoint of torusrun"),
        ({"net": torch.nn.Linear(2, 2), "folder": "saved"}, "it has model, and the script has net"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(
    settings: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "foreign/step-00000001").mkdir(parents=True)
    if settings.get("folder") == "saved":
        saved = Checkpoints(model=torch.nn.Linear(2, 2), folder="saved")
        steps(saved, 1)
        saved.close()
    with pytest.raises((TypeError, ValueError), match=re.escape(says)):
        Checkpoints(**settings).resume()


def test_a_script_that_forgets_to_resume_gets_a_clear_error(tmp_path: Path) -> None:
    checkpoints = Checkpoints(model=torch.nn.Linear(2, 2), folder=tmp_path / "ckpt")
    for method in (lambda: checkpoints.after_step(1), checkpoints.close):
        with pytest.raises(RuntimeError, match=r"comes after resume\(\): call it once before the first step"):
            method()
