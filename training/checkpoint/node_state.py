"""Keeps the newest state in the memory of every node, and lets all ranks of the next attempt continue from it.

Every node has the whole state. Its first rank copies it after each step to two files (slots) in turn: so one slot is
always whole. An attempt continues from a state that any of its nodes holds, and a node without it gets it from another.
All ranks must have read the same, or the newest checkpoint on the disk counts.

A file begins with a checksum and a head, which describes the content; both are missing while the state is copied. Then
come the bytes of a checkpoint's state.pt, in pieces.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import mmap
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from torusrun.training.checkpoint import node_memory
from torusrun.training.checkpoint.snapshot import Snapshot, tensors_of
from torusrun.training.config import Config
from torusrun.training.files import job_memory
from torusrun.training.files.trusted import SECRET, open_own, open_own_folder, open_regular
from torusrun.training.learner import Learner
from torusrun.training.meeting.agree import checksum, everyones, on_all_ranks, sent
from torusrun.training.meeting.rendezvous import SignedStore
from torusrun.training.progress import Progress
from torusrun.training.reporting.output import warn

BOOT = Path("/proc/sys/kernel/random/boot_id")
NOTHING = -1
SLOTS = ("0", "1")  # the names of the files
HEAD_BYTES = 4096  # the tensors begin at a page
DIGEST_BYTES = 32


@dataclass(frozen=True)
class Head:
    """What a slot holds: the state of a `run` after `step` steps, as an `attempt` left it.

    `pieces` are (offset, length) in the file.
    """

    run: str
    step: int
    attempt: int
    pieces: list[tuple[int, int]]

    def written(self, descriptor: int) -> None:
        """Put the head into a file, which is whole from then on."""
        words = json.dumps(asdict(self)).encode()
        os.pwrite(descriptor, _digest(words, self.pieces, descriptor) + words, 0)


def _digest(words: bytes, pieces: list[tuple[int, int]], descriptor: int) -> bytes:
    """The checksum of a head and of all pieces but the tensors, which are every second piece."""
    digest = hashlib.sha256(words)
    for offset, length in pieces[::2]:
        digest.update(os.pread(descriptor, length, offset))
    return digest.digest()


def head_of(folder: Path, slot: str) -> Head | None:
    """The head of a slot; None if it is not whole, or not this user's."""
    try:
        descriptor = open_own(folder / slot)
    except OSError:
        return None
    try:
        block = os.pread(descriptor, HEAD_BYTES, 0)
        digest, words = block[:DIGEST_BYTES], block[DIGEST_BYTES:].rstrip(b"\0")
        head = Head(**json.loads(words))
        return head if _digest(words, head.pieces, descriptor) == digest else None
    except (ValueError, TypeError, OSError):
        return None
    finally:
        os.close(descriptor)


def newest(folder: Path, run: str) -> tuple[str, Head] | None:
    """The slot with the newest state of a run, and its head."""
    held = [(slot, head) for slot in SLOTS if (head := head_of(folder, slot)) and head.run == run]
    return max(held, key=lambda each: (each[1].step, each[1].attempt), default=None)


def read(folder: Path, slot: str, head: Head) -> dict[str, Any]:
    """The state in a slot, with its tensors in memory of their own. Raises OSError, or as torch.load."""
    with open(open_own(folder / slot), "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        content = b"".join(mapped[offset : offset + length] for offset, length in head.pieces)
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


class Copies:
    """The copies of an attempt's states in a folder; `first` is the first slot to fill."""

    def __init__(self, folder: Path, run: str, attempt: int, first: str = SLOTS[0]) -> None:
        self._folder, self._run, self._attempt, self._slot = folder, run, attempt, first
        self._snapshots = {slot: Snapshot(HEAD_BYTES, partial(_create, folder, slot)) for slot in SLOTS}
        self._arriving: tuple[Snapshot, Head] | None = None
        self._begun = False

    def put(self, state: dict[str, Any], step: int) -> None:
        """Copy a state. Raises OSError if the node, or the job within its limit, has no room."""
        self.look(wait=True)
        if not self._begun:
            _check_room(len(SLOTS) * sum(tensor.nbytes for tensor in tensors_of(state)))
            self._begun = True
        snapshot, self._slot = self._snapshots[self._slot], SLOTS[1 - SLOTS.index(self._slot)]
        if snapshot.begun:
            os.pwrite(snapshot.descriptor, bytes(HEAD_BYTES), 0)
        self._arriving = snapshot, Head(self._run, step, self._attempt, snapshot.take(state))
        self.look(wait=False)

    def look(self, wait: bool) -> None:
        """Let the newest copy be whole, if its tensors have arrived from the device."""
        if self._arriving:
            snapshot, head = self._arriving
            if wait:
                snapshot.wait()
            if snapshot.ready():
                head.written(snapshot.descriptor)
                self._arriving = None

    def give_up(self) -> None:
        """Keep no copies any more."""
        for slot, snapshot in self._snapshots.items():
            snapshot.close()
            with suppress(OSError):
                (self._folder / slot).unlink()


def _create(folder: Path, slot: str, _size_bytes: int) -> int:
    """A new file for a slot, in place of an older file. Raises OSError."""
    own = open_own_folder(folder)
    try:
        with suppress(FileNotFoundError):
            os.unlink(slot, dir_fd=own)
        return open_regular(slot, os.O_RDWR | os.O_CREAT | os.O_EXCL, SECRET, own)
    finally:
        os.close(own)


def _check_room(needed_bytes: int) -> None:
    """Raises OSError if the job has less memory left here: beyond its limit the kernel would kill a rank."""
    try:
        used_bytes, all_bytes = job_memory.memory()
    except (OSError, ValueError):  # the node does not report it
        return
    if needed_bytes > all_bytes - used_bytes:
        free = f"{max(all_bytes - used_bytes, 0) / 1e6:.0f} MB of memory are free for this job"
        raise OSError(errno.ENOMEM, f"{free}, and {needed_bytes / 1e6:.0f} MB are needed")


class NodeState:
    """The copies of the state of this rank's node. All ranks call the same methods at the same steps."""

    def __init__(self, config: Config, learner: Learner) -> None:
        self._config, self._learner, self._folder = config, learner, config.memory
        known = [config.run, str(config.checkpoints), asdict(config.train)]  # of all attempts with this recipe
        self._run = hashlib.sha256(json.dumps(known, default=str).encode()).hexdigest()
        self._copies: Copies | None = None
        self._first = True  # of the ranks of this node

    def resume(self, meeting: SignedStore, newer_than: int) -> str | None:
        """Continue from the newest state that a node holds, if it is after more steps than `newer_than`.

        Returns its place; None without such a state, or if anything about it is doubtful.
        """
        node, wrong = self._node()
        held = newest(self._folder, self._run) if node else None
        own = [node, held[1].step, held[1].attempt] if held else [node, NOTHING, NOTHING]
        everyone = everyones(torch.tensor(own, device=self._learner.device)).tolist()
        self._first = dist.get_rank() == next(rank for rank, (of, _, _) in enumerate(everyone) if of == node)
        step, attempt = max((step, attempt) for _, step, attempt in everyone)
        holders = [rank for rank, (_, *has) in enumerate(everyone) if has == [step, attempt]]
        state = self._read(held, holders) if step > newer_than else None
        if state:
            self._learner.restore(state)
            if dist.get_rank() == holders[0]:
                meeting.set("memory", socket.gethostname())
        self._begin(held[0] if state and held and dist.get_rank() in holders else None, wrong)
        return f"memory of {meeting.get('memory').decode()}, step {step}" if state else None

    def keep(self) -> None:
        if self._copies:
            try:
                self._copies.put(self._learner.state(), self._learner.progress.steps)
            except OSError as error:
                self._copies.give_up()
                self._copies = None
                self._refused(error)

    def end(self) -> None:
        """Remove all copies: the attempt ended well."""
        self._copies = None
        if self._first:
            node_memory.remove(self._folder)

    def _node(self) -> tuple[int, str]:
        """A number for the memory of this node; 0, and the reason, if it cannot hold copies."""
        try:
            node_memory.make(self._folder)
            status = self._folder.stat()
            text = f"{BOOT.read_text()} {status.st_dev} {status.st_ino}"
        except OSError as error:
            return 0, f"{error.filename}: {error.strerror}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") + 1, ""

    def _read(self, held: tuple[str, Head] | None, holders: list[int]) -> dict[str, Any] | None:
        """The state that `holders` hold, if every rank gets the same, else None on all ranks."""
        state, holds = None, dist.get_rank() in holders
        if held and holds:
            with suppress(Exception):  # whatever is wrong with it: the disk has a state
                state = read(self._folder, *held)
        device = self._learner.device
        if not on_all_ranks(state is not None or not holds, device):
            return None
        if len(holders) < dist.get_world_size():
            file = io.BytesIO()
            if dist.get_rank() == holders[0]:
                torch.save(state, file)
            content = sent(file.getvalue(), holders[0], device)
            with suppress(Exception):
                state = state or torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        seen = everyones(torch.tensor(self._seen(state), device=device)).tolist()
        return state if all(each == seen[0] for each in seen) and seen[0] != [0] * len(seen[0]) else None

    def _seen(self, state: dict[str, Any] | None) -> list[int]:
        """Numbers that are the same for the same state; zeros if the state cannot be this training's."""
        with suppress(Exception):  # nothing of it is known yet
            assert state
            own, progress = self._learner.state(), Progress(**state["progress"])
            if _layouts(own["model"]) == _layouts(state["model"]) and own["data"] == state["data"]:
                return [progress.steps, progress.samples, int(checksum(tensors_of(state)))]
        return [0, 0, 0]

    def _begin(self, held: str | None, wrong: str) -> None:
        """Begin to copy; the slot `held` has the state from which this attempt continues."""
        if not self._first:
            return
        try:
            if wrong:
                raise OSError(0, wrong)
            node_memory.begin(self._folder, self._config.memory_until_s)
            for slot in SLOTS:
                if slot != held:
                    (self._folder / slot).unlink(missing_ok=True)
        except OSError as error:
            return self._refused(error)
        first = SLOTS[held == SLOTS[0]]
        self._copies = Copies(self._folder, self._run, self._config.attempt, first)

    def _refused(self, error: OSError) -> None:
        why = f"no copies of the state in the memory of {socket.gethostname()}: {error.strerror}"
        warn(f"training: {why}; the training continues with its checkpoints")


def _layouts(model: dict[str, torch.Tensor]) -> dict[str, tuple[torch.dtype, torch.Size]]:
    return {name: (tensor.dtype, tensor.shape) for name, tensor in model.items()}
