"""A run that is killed, stopped or finds torn checkpoints ends with the bits of an undisturbed one."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from training_runs import TINY, TINY_STEPS, assert_same_state, config, finish, launched, read_lines

from tests.waiting import until
from torusrun.training.recipe.train import SyncKeys
from torusrun.training.reporting.exits import EXIT_CUT_OFF, EXIT_STOPPED

GRID = (2, 2)
EPOCH_STEPS = 23
CHECKPOINT_STEPS = TINY["checkpoint_every_steps"]
KEPT = ["step-00000035", "step-00000042", "step-00000045"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = finish(config(folder, GRID, **TINY))
    kinds = [event["event"] for event in run.events()]
    assert kinds[0] == "start" and kinds[-1] == "done", f"the metrics should go from start to done: {kinds}"
    assert [event["epoch"] for event in run.events("eval")] == [1.0, 2.0], "one evaluation per epoch"
    assert done_of(folder, attempt=1) == {
        "schema": 1, "attempt": 1, "step": TINY_STEPS, "total_steps": TINY_STEPS, "samples": 64 * TINY_STEPS,
    }  # fmt: skip
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == KEPT, "the newest three are to be kept"
    return folder


def test_a_killed_rank(undisturbed: Path, tmp_path: Path, chance: Random) -> None:
    step, victim = chance.randrange(2, TINY_STEPS - 10), chance.randrange(4)
    why = f"rank {victim} was killed at about step {step}"
    with launched(config(tmp_path, GRID, **TINY), hold=[step, step + 2]) as launch:
        launch.wait_until_held(step)
        for rank in launch.ranks:
            rank.send_signal(signal.SIGUSR1)
        launch.release(step)
        launch.wait_until_held(step + 2)
        os.killpg(launch.ranks[victim].pid, signal.SIGKILL)
        launch.release(step + 2)
        codes = launch.codes()
    survivors = {code for rank, code in enumerate(codes) if rank != victim}
    assert survivors == {EXIT_CUT_OFF}, (
        f"{why}: the others must say that they lost a rank: {codes} {launch.stderr_text}"
    )
    for log in launch.logs:
        assert " in run\n" in log.read_text(), f"a rank that is asked where it is writes its stack and goes on: {log}"
    resumed = finish(config(tmp_path, GRID, attempt=2, **TINY))
    assert_resumed(resumed.events("start")[0]["resumed_from"], step, why)
    assert_same_state(tmp_path, undisturbed, TINY_STEPS, why)


def test_a_write_in_flight_survives_rank_0_and_what_kills_its_group(undisturbed: Path, tmp_path: Path) -> None:
    with launched(config(tmp_path, (2, 1), **TINY), hold=[1]) as launch:
        launch.wait_until_held(1)
        [writer] = children(launch.ranks[0].pid)
        until(lambda: os.getpgid(writer) == writer, "the writer's own process group")
        os.kill(writer, signal.SIGSTOP)
        launch.release(1)
        launch.wait_for_step(2 * CHECKPOINT_STEPS)  # the second checkpoint waits for the first one
        assert not list((tmp_path / "checkpoints").glob("step-*")), "the writer is stopped"
        os.killpg(launch.ranks[0].pid, signal.SIGKILL)
        assert launch.codes()[1] == EXIT_CUT_OFF, launch.stderr_text
        os.kill(writer, signal.SIGTERM)
        os.kill(writer, signal.SIGCONT)
        until(lambda: not Path(f"/proc/{writer}").exists(), "the writer's end")
    assert launch.events("step")[-1]["step"] == 2 * CHECKPOINT_STEPS, "one write is in flight at most"
    resumed = finish(config(tmp_path, (2, 1), attempt=2, **TINY))
    assert resumed.events("start")[0]["resumed_from"] == "step-00000007", "what was in memory is complete on the disk"


def test_a_training_whose_writer_is_killed_writes_its_checkpoints_itself(undisturbed: Path, tmp_path: Path) -> None:
    with launched(config(tmp_path, GRID, **TINY), hold=[1]) as launch:
        launch.wait_until_held(1)
        [writer] = children(launch.ranks[0].pid)
        os.kill(writer, signal.SIGKILL)
        launch.release(1)
        assert set(launch.codes()) == {0}, launch.stderr_text
    assert_same_state(tmp_path, undisturbed, TINY_STEPS, "the writer was killed")
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == KEPT


def test_sigterm_to_one_rank_stops_all_with_a_checkpoint(undisturbed: Path, tmp_path: Path, chance: Random) -> None:
    step, told = chance.randrange(2, TINY_STEPS - 10), chance.randrange(4)
    why = f"rank {told} got SIGTERM at about step {step}"
    with launched(config(tmp_path, GRID, **TINY), hold=[step]) as launch:
        launch.wait_until_held(step)
        launch.ranks[told].send_signal(signal.SIGTERM)
        launch.release(step)
        codes = launch.codes()
    assert set(codes) == {75}, f"{why}: all ranks must exit 75, not {codes}: {launch.stderr_text}"
    assert done_of(tmp_path, attempt=1) is None, "a stopped training is not done"
    stop = launch.events()[-1]
    assert stop["event"] == "stop" and stop["reason"] == "SIGTERM", f"the last event must be the stop: {stop}"
    resumed = finish(config(tmp_path, GRID, attempt=2, **TINY))
    assert resumed.events("start")[0]["resumed_from"] == f"step-{stop['step']:08d}", f"{why}: steps were lost"
    assert_same_state(tmp_path, undisturbed, TINY_STEPS, why)


def test_a_resumed_attempt_takes_the_same_all_reduce_at_each_size(tmp_path: Path, chance: Random) -> None:
    """Some buckets travel by the library's own all-reduce, others by the torus, whose sums have another order."""
    step, ends = chance.randrange(2, TINY_STEPS - 10), dict[str, Path]()
    own = {**TINY, "sync": SyncKeys(buckets="fujitsu"), "trace": True}
    by_size = [{"from_bytes": 0, "all_reduce": "flat"}, {"from_bytes": 100_000, "all_reduce": "torus"}]
    for name in ("whole", "stopped"):
        ends[name] = tmp_path / name
        ends[name].mkdir()
        first = {**config(ends[name], GRID, **own), "by_size": by_size}
        with launched(first, hold=[step] if name == "stopped" else []) as launch:
            if name == "stopped":
                launch.wait_until_held(step)
                launch.ranks[0].send_signal(signal.SIGTERM)
                launch.release(step)
            assert set(launch.codes()) == {75 if name == "stopped" else 0}, launch.stderr_text
    finish({**config(ends["stopped"], GRID, attempt=2, **own), "by_size": by_size})
    for attempt in (1, 2):
        head = read_lines(ends["stopped"] / f"attempts/{attempt}/trace.jsonl")[0]
        assert {bucket["all_reduce"] for bucket in head["buckets"]} == {"flat", "torus"}
    assert_same_state(ends["stopped"], ends["whole"], TINY_STEPS, f"stopped at about step {step}")


def test_torn_checkpoints_are_passed_over(undisturbed: Path, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(undisturbed / "checkpoints", checkpoints)
    flip_a_byte(checkpoints / "step-00000045" / "state.pt")
    (checkpoints / "step-00000042" / "manifest.json").unlink()
    half_written = checkpoints / ".tmp-step-00000049-1"
    half_written.mkdir()
    (half_written / "state.pt").write_bytes(b"half")
    resumed = finish(config(tmp_path, GRID, attempt=2, **TINY))
    assert resumed.events("start")[0]["resumed_from"] == "step-00000035", "a torn checkpoint was resumed from"
    assert_same_state(tmp_path, undisturbed, TINY_STEPS, "resumed past two torn checkpoints")
    left = sorted(path.name for path in checkpoints.iterdir())
    assert left == KEPT, f"leftovers must be gone: {left}"


def test_a_finished_run_only_evaluates(tmp_path: Path) -> None:
    first = finish(config(tmp_path, **TINY)).events("done")[0]
    second = finish(config(tmp_path, attempt=2, **TINY))
    assert [event["event"] for event in second.events()] == ["start", "eval", "done"], "nothing was left to train"
    assert done_of(tmp_path, attempt=2) == {**done_of(tmp_path, attempt=1), "attempt": 2}
    assert second.events("done")[0]["accuracy"] == first["accuracy"], "the same weights must score the same"


def test_an_attempt_evaluates_what_was_due_when_the_one_before_ended(undisturbed: Path, tmp_path: Path) -> None:
    """Here an attempt is stopped at the very step that ends an epoch."""
    with launched(config(tmp_path, GRID, **TINY), hold=[EPOCH_STEPS - 1]) as first:
        first.wait_until_held(EPOCH_STEPS - 1)
        first.ranks[0].send_signal(signal.SIGTERM)
        first.release(EPOCH_STEPS - 1)
        assert set(first.codes()) == {EXIT_STOPPED}, first.stderr_text
    assert first.events("stop")[0]["step"] == EPOCH_STEPS
    second = finish(config(tmp_path, GRID, attempt=2, **TINY))
    assert first.events("eval") == [], "the attempt that goes on evaluates"
    assert [event["epoch"] for event in second.events("eval")] == [1.0, 2.0], "the evaluation of epoch 1 is missing"
    expected = [event["accuracy"] for event in read_lines(undisturbed / "metrics.jsonl") if event["event"] == "eval"]
    assert [event["accuracy"] for event in second.events("eval")] == expected, "another model was evaluated"
    assert_same_state(tmp_path, undisturbed, TINY_STEPS, "stopped at the end of an epoch")


def done_of(folder: Path, attempt: int) -> Any:
    """What says that the attempt is done; None while nothing does."""
    path = folder / f"attempts/{attempt}/done.json"
    return json.loads(path.read_text()) if path.exists() else None


def assert_resumed(name: str | None, killed_after_step: int, why: str) -> None:
    at_least = killed_after_step // CHECKPOINT_STEPS * CHECKPOINT_STEPS
    step = int(name.removeprefix("step-")) if name else 0
    # The kill is asynchronous: the checkpoint of the very step may not be finished, a later one may be.
    assert step >= at_least - CHECKPOINT_STEPS, f"{why}: resumed from {name}, step {at_least} was there"


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
