"""The parts of a copied state in the memory of a node: a file for each rank of the node and each of two slots.

head        what the part holds, and a checksum of the head, the layouts and the rest; none while it is written
tensors     those of this share, at the places that their layouts say
layouts     as torch.save writes them
rest        in share 0: the state without its tensors, as torch.save writes it
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torusrun.training.checkpoint.shared_memory import Places
from torusrun.training.checkpoint.snapshot import with_tensors
from torusrun.training.files.trusted import SECRET, open_own, open_own_folder, open_regular

SLOTS = (0, 1)
HEAD_BYTES = 4096  # the tensors begin at a page
MAGIC = b"torusrun"
FIELDS = struct.Struct("<8s32sQQQQQQ")
DIGEST_BYTES = 32
PLACE = "\0tensor"  # in the rest of a state, where a tensor belongs


class Damaged(ValueError):
    """A part is not what its head says."""


@dataclass(frozen=True)
class Head:
    """What a part holds: the state of a `run` after `step` steps, as an `attempt` left it, as one of `shares`.

    Behind the tensors, at `begin`, are the layouts and the rest, in bytes.
    """

    run: bytes
    step: int
    attempt: int
    shares: int
    begin: int
    layouts_bytes: int
    rest_bytes: int

    @property
    def state(self) -> tuple[int, int, int, bytes]:
        """The same for all parts of one copy."""
        return self.step, self.attempt, self.shares, self.run

    def written(self, descriptor: int, behind: bytes) -> None:
        """Put the head into a part, which is whole from then on; `behind` is what is behind its tensors."""
        fields = FIELDS.pack(MAGIC, *astuple(self))
        os.pwrite(descriptor, fields + hashlib.sha256(fields + behind).digest(), 0)


def erase_head(descriptor: int) -> None:
    """Let a part be whole no longer."""
    os.pwrite(descriptor, bytes(FIELDS.size + DIGEST_BYTES), 0)


def create(folder: Path, slot: int, share: int) -> int:
    """A new file for a part, in place of any before. Raises OSError."""
    own = open_own_folder(folder)
    try:
        with suppress(FileNotFoundError):
            os.unlink(_name(slot, share), dir_fd=own)
        return open_regular(_name(slot, share), os.O_RDWR | os.O_CREAT | os.O_EXCL, SECRET, own)
    finally:
        os.close(own)


def delete(folder: Path, slot: int, share: int) -> None:
    """Delete a part, if it is there."""
    with suppress(OSError):
        (folder / _name(slot, share)).unlink()


def delete_from(folder: Path, slot: int, shares: int) -> None:
    """Delete the parts of a slot with the number `shares`, and above."""
    for path in folder.glob(f"{slot}.*"):
        if path.suffix[1:].isdigit() and int(path.suffix[1:]) >= shares:
            delete(folder, slot, int(path.suffix[1:]))


def head_of(folder: Path, slot: int, share: int) -> Head | None:
    """The head of a part; None if it is not whole, or not this user's."""
    try:
        descriptor = open_own(folder / _name(slot, share))
    except OSError:
        return None
    try:
        return _head(os.pread(descriptor, FIELDS.size, 0))
    finally:
        os.close(descriptor)


def newest(folder: Path, run: bytes) -> tuple[int, Head] | None:
    """The slot with the newest state of a run of which all parts are whole, and the head of its first part."""
    found = [(slot, head) for slot in SLOTS if (head := head_of(folder, slot, 0)) and _is_whole(folder, slot, head)]
    return max(
        (each for each in found if each[1].run == run), key=lambda each: (each[1].step, each[1].attempt), default=None
    )


def read(folder: Path, slot: int, head: Head) -> dict[str, Any]:
    """The state in a slot, with its tensors in memory of their own. Raises Damaged or OSError, or as torch.load."""
    tensors, rests = [], []
    for share in range(head.shares):
        descriptor = open_own(folder / _name(slot, share))
        try:
            found, rest = _part(descriptor, head)
        finally:
            os.close(descriptor)
        tensors += found
        rests.append(rest)
    places = iter(tensors)
    state: dict[str, Any] = _placed(torch.load(io.BytesIO(rests[0]), weights_only=True), places)
    if next(places, None) is not None:
        raise Damaged("there are more tensors than places")
    return state


def rest_of(state: dict[str, Any]) -> bytes:
    """A state without its tensors."""
    return saved(with_tensors(state, iter(lambda: PLACE, None)))


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _is_whole(folder: Path, slot: int, head: Head) -> bool:
    others = (head_of(folder, slot, share) for share in range(1, head.shares))
    return all(other is not None and other.state == head.state for other in others)


def _head(fields: bytes) -> Head | None:
    if len(fields) < FIELDS.size:
        return None
    magic, *values = FIELDS.unpack(fields)
    return Head(*values) if magic == MAGIC else None


def _part(descriptor: int, expected: Head) -> tuple[list[Tensor], bytes]:
    """The tensors of a part, and the rest of the state."""
    fields = os.pread(descriptor, FIELDS.size, 0)
    head, digest = _head(fields), os.pread(descriptor, DIGEST_BYTES, FIELDS.size)
    if head is None or head.state != expected.state:
        raise Damaged("another head")
    if head.begin + head.layouts_bytes + head.rest_bytes != os.fstat(descriptor).st_size:
        raise Damaged("another size")
    behind = os.pread(descriptor, head.layouts_bytes + head.rest_bytes, head.begin)
    if hashlib.sha256(fields + behind).digest() != digest:
        raise Damaged("another checksum")
    layouts = torch.load(io.BytesIO(behind[: head.layouts_bytes]), weights_only=True)
    places = Places(layouts, HEAD_BYTES)
    if places.bytes != head.begin:
        raise Damaged("another layout")
    mapped = mmap.mmap(descriptor, places.bytes, access=mmap.ACCESS_COPY)  # unmapped with the last view of it
    return [view.clone() for view in places.views(places.on(mapped))], behind[head.layouts_bytes :]


def _placed(rest: Any, tensors: Iterator[Tensor]) -> Any:
    """The state with its tensors in the places of `rest`."""
    if isinstance(rest, str) and rest == PLACE:
        if (tensor := next(tensors, None)) is None:
            raise Damaged("there are more places than tensors")
        return tensor
    if isinstance(rest, dict):
        for name, value in rest.items():
            rest[name] = _placed(value, tensors)
        return rest
    if isinstance(rest, (list, tuple)):
        values = [_placed(value, tensors) for value in rest]
        return values if isinstance(rest, list) else tuple(values)
    return rest


def _name(slot: int, share: int) -> str:
    return f"{slot}.{share}"
