"""A copied state is read with the same bits; in the memory of a node one copy is always whole."""

from __future__ import annotations

import copy
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from states import any_state, any_tensor, differing, saved

from torusrun.training.checkpoint import node_memory
from torusrun.training.checkpoint.loading import load
from torusrun.training.checkpoint.node_state import Copies, Head, head_of, newest, read
from torusrun.training.checkpoint.snapshot import Snapshot
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.files.trusted import own_folder
from torusrun.training.progress import Progress

RUN = "r" * 64


@contextmanager
def small_files() -> Iterator[None]:
    most_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, most_bytes[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most_bytes)


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
    with small_files(), pytest.raises(OSError, match="File too large"):
        made.put(large, 2)
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
    now_s, mine = time.time(), own_folder(tmp_path)
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


CPU = torch.device("cpu")


def layouts(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        dense = value.is_contiguous() or value.is_contiguous(memory_format=torch.channels_last)
        return [(value.dtype, value.stride() if dense else None)]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    return [found for each in values for found in layouts(each)]


@pytest.mark.parametrize("number", range(20))
def test_any_state_is_read_as_it_was_when_it_was_copied(tmp_path: Path, chance: Random, number: int) -> None:
    torch.manual_seed(chance.randrange(10**6))
    whole = {"a": any_state(chance), "b": any_state(chance), "c": any_tensor(chance)}
    folder = CheckpointFolder(tmp_path, attempt=1)
    name = saved(folder, whole, Progress(1, 64), 0.1)
    assert folder.newest is not None
    found = load(tmp_path, name, folder.newest.sha256["state.pt"], CPU)
    assert not differing(whole, found)
    expected = [(dtype, stride) for dtype, stride in layouts(whole) if stride is not None]
    got = [a for a, b in zip(layouts(found), layouts(whole), strict=True) if b[1] is not None]
    assert got == expected, "a copy keeps types and strides"


@pytest.fixture(params=["new", "built for an old Linux"])
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "new":
        monkeypatch.delattr(os, "memfd_create")


def test_what_changes_after_the_copy_does_not_change_the_copy(python: None) -> None:
    weights = {"w": torch.arange(1000.0), "n": torch.tensor(3)}
    snapshot = Snapshot()
    parts = snapshot.take(weights)
    before = pieces(snapshot, parts)
    expected = copy.deepcopy(weights)
    weights["w"] += 1
    assert pieces(snapshot, parts) == before
    first = snapshot.descriptor
    snapshot.take(weights)
    assert snapshot.descriptor == first, "the memory of the same tensors is used again"
    assert torch.equal(expected["w"] + 1, weights["w"])


def test_a_copy_without_memory_leaves_nothing_and_the_next_one_starts_from_zero(python: None) -> None:
    snapshot, before = Snapshot(), os.listdir("/proc/self/fd")
    snapshot.take({"w": torch.ones(10)})
    with small_files(), pytest.raises(OSError, match="File too large"):
        snapshot.take({"w": torch.ones(1 << 16)})
    assert os.listdir("/proc/self/fd") == before, "the files of both memories are closed"
    others = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
    snapshot.take({"w": torch.ones(1 << 16)})
    for descriptor in others:
        os.close(descriptor)  # an OSError if the copy has closed it


def test_a_memory_that_takes_less_than_all_gets_the_rest_or_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    state, put = {f"layer {number}": torch.arange(4.0) for number in range(50)}, os.pwrite
    whole = Snapshot()
    expected = pieces(whole, whole.take(state))
    snapshot = Snapshot()
    monkeypatch.setattr(os, "pwrite", lambda descriptor, content, at: put(descriptor, content[:1000], at))
    assert pieces(snapshot, snapshot.take(state)) == expected
    monkeypatch.setattr(os, "pwrite", lambda descriptor, content, at: 0)
    with pytest.raises(OSError, match="No space left on device"):
        snapshot.take(state)


def test_tensors_that_would_be_lost_are_refused() -> None:
    with pytest.raises(RuntimeError, match="strided tensors only"):
        Snapshot().take({"w": torch.eye(3).to_sparse(), "v": torch.ones(2)})


def pieces(snapshot: Snapshot, parts: list[tuple[int, int]]) -> bytes:
    return b"".join(os.pread(snapshot.descriptor, length, begin) for begin, length in parts)
