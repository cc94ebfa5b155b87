"""Copies in the memory of a node: read as they were written, one is always whole, and without room there are none."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from random import Random

import pytest
import torch
from states import any_state, differing

from torusrun.training.checkpoint import node_memory
from torusrun.training.checkpoint.node_state import Copies, Head, head_of, newest, read
from torusrun.training.files import own_folder

RUN = "r" * 64


def copies(folder: Path) -> Copies:
    node_memory.make(folder)
    return Copies(folder, RUN, attempt=1)


@pytest.mark.parametrize("number", range(10))
def test_any_state_is_read_as_it_was(tmp_path: Path, chance: Random, number: int) -> None:
    torch.manual_seed(chance.randrange(10**6))
    made = copies(tmp_path / "node")
    for step in (1, 2, 3):  # with other layouts each time
        state = {"a": any_state(chance), "b": any_state(chance)}
        made.put(state, step)
        assert (held := newest(tmp_path / "node", RUN)) and held[1].step == step
        assert not differing(state, read(tmp_path / "node", *held))


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_wherever_a_copy_ends_the_one_before_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    states = [{"w": torch.full([1000], float(step)), "v": torch.full([1000], float(step))} for step in range(7)]
    made = copies(tmp_path / "node")
    for step in range(steps):
        made.put(states[step], step)
    monkeypatch.setattr(Head, "written", lambda *_: None)  # as if it was killed before its head
    made.put(states[steps], steps)
    assert (held := newest(tmp_path / "node", RUN)) and held[1].step == steps - 1
    assert not differing(states[steps - 1], read(tmp_path / "node", *held))
    other = {"0": "1", "1": "0"}[held[0]]
    assert head_of(tmp_path / "node", other) is None, "the slot that was overwritten still seems whole"


def test_without_room_there_are_no_copies(tmp_path: Path) -> None:
    made = copies(tmp_path / "node")
    small, large = ({"w": torch.ones(size), "v": torch.ones(size)} for size in (10, 1 << 18))
    made.put(small, 1)
    most_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, most_bytes[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            made.put(large, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most_bytes)
    made.give_up()
    assert not [*(tmp_path / "node").iterdir()], "the memory is given back"


def test_copies_that_would_exceed_the_memory_of_the_job_are_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = copies(tmp_path / "node")
    monkeypatch.setattr("torusrun.training.files.job_memory.memory", lambda: (10**9, 10**9 + 7999))
    with pytest.raises(OSError, match="0 MB of memory are free for this job"):
        rank.put({"w": torch.ones(1000)}, 1)
    assert not [*(tmp_path / "node").iterdir()], "the kernel would have killed a rank"
    monkeypatch.setattr("torusrun.training.files.job_memory.memory", lambda: (10**9, 10**9 + 8000))
    rank.put({"w": torch.ones(1000)}, 1)


def test_copies_of_jobs_that_must_be_over_are_removed_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_memory, "SHARED", tmp_path)
    now_s, mine = time.time(), own_folder.own(tmp_path)
    for name, until_s in {"memory-over": now_s - 1, "memory-works": now_s + 60, "other": now_s - 1}.items():
        node_memory.make(mine / name)
        node_memory.begin(mine / name, until_s)
        (mine / name / "0.0").write_bytes(b"state")
    node_memory.make(mine / "memory-new")
    node_memory.make(mine / "memory-unknown")
    os.utime(mine / "memory-unknown", (0, 0))
    (mine / "memory-link").symlink_to(mine / "other")
    node_memory.remove_overdue(now_s)
    assert sorted(path.name for path in mine.iterdir()) == ["memory-link", "memory-new", "memory-works", "other"]
    assert (mine / "other" / "0.0").exists(), "a link was followed"


def test_an_attempt_that_is_over_leaves_no_file_open_in_a_process_that_continues(tmp_path: Path) -> None:
    rank = copies(tmp_path / "node")
    before = len(os.listdir("/proc/self/fd"))
    for step in (1, 2):
        rank.put({"a": torch.ones(10)}, step)
    assert len(os.listdir("/proc/self/fd")) > before
    del rank
    assert len(os.listdir("/proc/self/fd")) == before
