"""A copied state is written and read with the same bits, types, shapes and strides; nothing is left out unnoticed."""

from __future__ import annotations

import copy
import os
import resource
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from states import any_state, any_tensor, differing, saved

from torusrun.training.checkpoint.loading import load
from torusrun.training.checkpoint.snapshot import Snapshot
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.progress import Progress

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


@pytest.mark.parametrize("python", ["new", "built for an old Linux"])
def test_what_changes_after_the_copy_does_not_change_the_copy(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if python != "new":
        monkeypatch.delattr(os, "memfd_create")
    weights = {"w": torch.arange(1000.0), "n": torch.tensor(3)}
    snapshot = Snapshot()
    parts = snapshot.take(weights)
    before = read(snapshot, parts)
    expected = copy.deepcopy(weights)
    weights["w"] += 1
    assert read(snapshot, parts) == before
    first = snapshot.descriptor
    snapshot.take(weights)
    assert snapshot.descriptor == first, "the memory of the same tensors is used again"
    assert torch.equal(expected["w"] + 1, weights["w"])


@pytest.mark.parametrize("python", ["new", "built for an old Linux"])
def test_a_copy_without_memory_leaves_nothing_and_the_next_one_starts_from_zero(
    python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if python != "new":
        monkeypatch.delattr(os, "memfd_create")
    snapshot, before = Snapshot(), os.listdir("/proc/self/fd")
    snapshot.take({"w": torch.ones(10)})
    most_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, most_bytes[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            snapshot.take({"w": torch.ones(1 << 16)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most_bytes)
    assert os.listdir("/proc/self/fd") == before, "the files of both memories are closed"
    others = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
    snapshot.take({"w": torch.ones(1 << 16)})
    for descriptor in others:
        os.close(descriptor)  # an OSError if the copy has closed it


def test_a_memory_that_takes_less_than_all_gets_the_rest_or_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    state, put = {f"layer {number}": torch.arange(4.0) for number in range(50)}, os.pwrite
    whole = Snapshot()
    expected = read(whole, whole.take(state))
    snapshot = Snapshot()
    monkeypatch.setattr(os, "pwrite", lambda descriptor, content, at: put(descriptor, content[:1000], at))
    assert read(snapshot, snapshot.take(state)) == expected
    monkeypatch.setattr(os, "pwrite", lambda descriptor, content, at: 0)
    with pytest.raises(OSError, match="No space left on device"):
        snapshot.take(state)


def test_tensors_that_would_be_lost_are_refused() -> None:
    with pytest.raises(RuntimeError, match="strided tensors only"):
        Snapshot().take({"w": torch.eye(3).to_sparse(), "v": torch.ones(2)})


def read(snapshot: Snapshot, parts: list[tuple[int, int]]) -> bytes:
    return b"".join(os.pread(snapshot.descriptor, length, begin) for begin, length in parts)
