"""Copies of the newest states in the memory of a node, in parts (parts.py) that the ranks of the node write.

There are two slots. A rank overwrites one only if the other is whole on all ranks of the node, so one always is.
"""

from __future__ import annotations

import errno
import time
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from torusrun.training.checkpoint import parts
from torusrun.training.checkpoint.node_memory import OFF
from torusrun.training.checkpoint.parts import HEAD_BYTES, SLOTS, Head, head_of
from torusrun.training.checkpoint.shared_memory import SharedMemory
from torusrun.training.checkpoint.snapshot import tensors_of
from torusrun.training.files import job_memory
from torusrun.training.files.trusted import SECRET

LOOK_S = 0.0002
MATES_S = 30.0  # how long the other ranks of the node may take for a copy


class Share(NamedTuple):
    """The part of a rank in the copies of its node: `number` of `shares`."""

    number: int
    shares: int

    def of(self, tensors: list[Tensor]) -> list[Tensor]:
        """The tensors of this share, which follow one another: about as many bytes as in the others."""
        ends = [*accumulate(tensor.nbytes for tensor in tensors)]
        whole = max(ends[-1], 1) if ends else 1
        of_share = [min((end - 1) * self.shares // whole, self.shares - 1) for end in ends]
        return [tensor for tensor, share in zip(tensors, of_share, strict=True) if max(share, 0) == self.number]


class Copies:
    """This rank's `share` of the copies below `folder`, of an attempt's states; `first` is the first slot to fill."""

    def __init__(self, folder: Path, share: Share, run: bytes, attempt: int, first: int) -> None:
        self._folder, self._share, self._run, self._attempt = folder, share, run, attempt
        self._slot = first
        self._memories: dict[int, SharedMemory] = {}
        self._layouts: dict[int, bytes] = {}
        self._arriving: tuple[int, Head, bytes] | None = None  # a slot, its head and what is behind its tensors
        self._newest: tuple[int, Head] | None = None

    def put(self, state: dict[str, Any], step: int) -> None:
        """Copy this rank's share of a state. Raises OSError if a rank of this node has no space."""
        self.look(wait=True)
        self._wait_for_mates()
        slot, self._slot = self._slot, 1 - self._slot
        whole = list(tensors_of(state))
        tensors = self._share.of(whole)
        memory = self._fitted(slot, tensors, sum(tensor.nbytes for tensor in whole))
        parts.erase_head(memory.descriptor)
        memory.copy(tensors)
        rest = parts.rest_of(state) if self._share.number == 0 else b""
        layouts = self._layouts[slot]
        begin = memory.append(layouts + rest)
        head = Head(self._run, step, self._attempt, self._share.shares, begin, len(layouts), len(rest))
        self._arriving = slot, head, layouts + rest
        self.look(wait=False)

    def look(self, wait: bool) -> None:
        """Let the newest copy be whole, if its tensors have arrived from the device."""
        if not self._arriving:
            return
        slot, head, behind = self._arriving
        copied = self._memories[slot].copied
        if copied and wait:
            copied.synchronize()
        if copied is None or copied.query():  # type: ignore[no-untyped-call]
            head.written(self._memories[slot].descriptor, behind)
            self._arriving, self._newest = None, (slot, head)

    def give_up(self) -> None:
        """Keep no copies any more, on no rank of this node."""
        with suppress(OSError):  # without the folder the others find out by themselves
            (self._folder / OFF).touch(SECRET)
        for memory in self._memories.values():
            memory.close()
        for slot in SLOTS:
            parts.delete(self._folder, slot, self._share.number)
        self._memories, self._arriving, self._newest = {}, None, None

    def _wait_for_mates(self) -> None:
        """Wait until the newest copy is whole on all ranks of this node: on a CPU it is whenever all took a step."""
        if not self._newest:
            return
        slot, head = self._newest
        mates = [share for share in range(self._share.shares) if share != self._share.number]
        until_s = time.monotonic() + MATES_S
        while not all((of := head_of(self._folder, slot, mate)) and of.state == head.state for mate in mates):
            if (self._folder / OFF).exists():
                raise OffHere(0, "another rank of this node found no room")
            if not self._folder.exists():
                raise OSError(0, f"somebody has removed {self._folder}")
            if time.monotonic() > until_s:
                raise OSError(0, f"another rank of this node wrote no copy for {MATES_S:g} s")
            time.sleep(LOOK_S)

    def _fitted(self, slot: int, tensors: list[Tensor], state_bytes: int) -> SharedMemory:
        """The memory of a slot for these tensors. Raises OSError if there is no room."""
        memory = self._memories.get(slot)
        if memory is not None and memory.fits(tensors):
            return memory
        if memory is not None:
            self._memories.pop(slot).close()
        if not self._memories:
            _check_room(len(SLOTS) * state_bytes)
        if self._share.number == 0:
            parts.delete_from(self._folder, slot, self._share.shares)  # an attempt before had more ranks here
        made = SharedMemory(tensors, HEAD_BYTES, lambda _: parts.create(self._folder, slot, self._share.number))
        self._memories[slot], self._layouts[slot] = made, parts.saved(made.layouts)
        return made


def _check_room(needed_bytes: int) -> None:
    """Raises OSError if the job has less memory left here: beyond its limit the kernel would kill a rank."""
    try:
        used_bytes, all_bytes = job_memory.memory()
    except (OSError, ValueError):  # the node does not report it
        return
    if needed_bytes > all_bytes - used_bytes:
        free = f"{max(all_bytes - used_bytes, 0) / 1e6:.0f} MB of memory are free for this job"
        raise OSError(errno.ENOMEM, f"{free}, and {needed_bytes / 1e6:.0f} MB are needed")


class OffHere(OSError):
    """Another rank of this node has stopped keeping copies, and has printed why."""
