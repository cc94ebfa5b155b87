"""Copies in the memory of a node: read as they were written, one is always whole, and without room there are none."""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path
from random import Random

import pytest
import torch
from states import any_state, differing

from torusrun.training.checkpoint import node_memory, parts
from torusrun.training.checkpoint.copies import Copies, OffHere, Share
from torusrun.training.checkpoint.parts import Head
from torusrun.training.files import own_folder

RUN = b"r" * 32


def mates(folder: Path, ranks: int) -> list[Copies]:
    node_memory.make(folder)
    return [Copies(folder, Share(number, ranks), RUN, 1, first=0) for number in range(ranks)]


def found(folder: Path) -> tuple[int, Head]:
    newest = parts.newest(folder, RUN)
    assert newest, "no copy is whole"
    return newest


@pytest.mark.parametrize("number", range(10))
def test_any_state_is_read_as_it_was(tmp_path: Path, chance: Random, number: int) -> None:
    torch.manual_seed(chance.randrange(10**6))
    ranks = mates(tmp_path / "node", chance.randrange(1, 5))
    for step in (1, 2, 3):  # with other layouts each time
        state = {"a": any_state(chance), "b": any_state(chance)}
        for rank in ranks:
            rank.put(state, step)
        slot, head = found(tmp_path / "node")
        assert head.step == step
        assert not differing(state, parts.read(tmp_path / "node", slot, head))


@pytest.mark.parametrize("at", range(4))
def test_wherever_a_copy_ends_the_one_before_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    states = [{"w": torch.full([1000], float(step)), "v": torch.full([1000], float(step))} for step in range(6)]
    ranks = mates(tmp_path / "node", 2)
    for step in range(3):
        for rank in ranks:
            rank.put(states[step], step)
    late = ranks[at % 2]
    with monkeypatch.context() as killed:
        killed.setattr(Head, "written", lambda *_: None)  # as if it was killed before its head
        late.put(states[3], 3)
    assert not any((head := parts.head_of(tmp_path / "node", slot, at % 2)) and head.step == 1 for slot in (0, 1)), (
        "the part that was overwritten still seems whole"
    )
    if at > 1:
        ranks[1 - at % 2].put(states[3], 3)
    slot, head = found(tmp_path / "node")
    assert head.step == 2 and not differing(states[2], parts.read(tmp_path / "node", slot, head))


def test_a_rank_waits_for_its_mates_before_it_overwrites_the_only_whole_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torusrun.training.checkpoint.copies.MATES_S", 0.0)
    first, second = mates(tmp_path / "node", 2)
    state = {"w": torch.ones(10), "v": torch.ones(10)}
    for rank in (first, second):
        rank.put(state, 1)
    first.put(state, 2)
    with pytest.raises(OSError, match="wrote no copy"):
        first.put(state, 3)
    assert found(tmp_path / "node")[1].step == 1, "step 1 is the only one that both have"


def test_without_room_there_are_no_copies_on_any_rank_of_the_node(tmp_path: Path) -> None:
    first, second = mates(tmp_path / "node", 2)
    small, large = ({"w": torch.ones(size), "v": torch.ones(size)} for size in (10, 1 << 18))
    first.put(small, 1)
    second.put(small, 1)
    most_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, most_bytes[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            first.put(large, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most_bytes)
    first.give_up()
    with pytest.raises(OffHere):
        second.put(large, 2)
    second.give_up()
    assert [path.name for path in (tmp_path / "node").iterdir()] == [node_memory.OFF], "the memory is given back"


def test_a_folder_that_somebody_removes_costs_the_copies_alone(tmp_path: Path) -> None:
    ranks, state = mates(tmp_path / "node", 2), {"w": torch.ones(10), "v": torch.ones(10)}
    for rank in ranks:
        rank.put(state, 1)
    shutil.rmtree(tmp_path / "node")
    for rank in ranks:
        with pytest.raises(OSError, match="somebody has removed"):
            rank.put(state, 2)
        rank.give_up()


def test_copies_that_would_exceed_the_memory_of_the_job_are_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [rank] = mates(tmp_path / "node", 1)
    monkeypatch.setattr("torusrun.training.files.job_memory.memory", lambda: (10**9, 10**9 + 7999))
    with pytest.raises(OSError, match="0 MB of memory are free for this job"):
        rank.put({"w": torch.ones(1000)}, 1)
    assert not [*(tmp_path / "node").iterdir()], "the kernel would have killed a rank"
    monkeypatch.setattr("torusrun.training.files.job_memory.memory", lambda: (10**9, 10**9 + 8000))
    rank.put({"w": torch.ones(1000)}, 1)


@pytest.mark.parametrize("shares", [1, 2, 3, 8])
def test_shares_are_all_tensors_in_order_and_about_as_large(shares: int, chance: Random) -> None:
    tensors = [torch.empty(chance.randrange(100)) for _ in range(chance.randrange(200))]
    given = [Share(number, shares).of(tensors) for number in range(shares)]
    assert [id(tensor) for share in given for tensor in share] == [id(tensor) for tensor in tensors]
    sizes = [sum(tensor.nbytes for tensor in share) for share in given]
    assert max(sizes) - sum(sizes) / shares <= 400, f"a share is larger by more than a tensor: {sizes}"


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
    (rank,) = mates(tmp_path / "node", 1)
    before = len(os.listdir("/proc/self/fd"))
    for step in (1, 2):
        rank.put({"a": torch.ones(10)}, step)
    assert len(os.listdir("/proc/self/fd")) > before
    del rank
    assert len(os.listdir("/proc/self/fd")) == before
