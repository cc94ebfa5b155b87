"""A copy of a state in memory that is shared with the process that writes it.

All tensors of one type lie side by side in one piece, and the training continues once they are copied. On a GPU they
are first copied on the device, which takes as long as one pass over its memory. One copy in a stream of its own then
brings them to the host beside the next steps. torch.save writes the rest of the file, without the tensors
(torch.serialization.skip_data): `torch.load` reads the result like any other, but the CRC that the format has for a
tensor is not computed. The manifest has a SHA-256 of the whole file.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.serialization import skip_data

from torusrun.training.checkpoint.shared_memory import SharedMemory


class Snapshot:
    """The newest copy of a state. `descriptor` is the open file of the shared memory.

    The first `head_bytes` of it stay free; `opened` makes the file, of so many bytes, which otherwise has no name.
    """

    def __init__(self, head_bytes: int = 0, opened: Callable[[int], int] | None = None) -> None:
        self._head_bytes, self._opened = head_bytes, opened
        self._memory: SharedMemory | None = None

    @property
    def begun(self) -> bool:
        """Whether there is a `descriptor`."""
        return self._memory is not None

    @property
    def descriptor(self) -> int:
        assert self._memory, "nothing was copied yet"
        return self._memory.descriptor

    def take(self, state: dict[str, Any]) -> list[tuple[int, int]]:
        """Copy a state; returns the parts of its file within the shared memory, as (offset, length).

        Raises OSError if there is no memory for it, and RuntimeError for tensors that are not strided.
        """
        tensors = list(tensors_of(state))
        if self._memory is None or not self._memory.fits(tensors):
            self.close()  # also if there is no room for the next one
            self._memory = SharedMemory(tensors, self._head_bytes, self._opened)
        self._memory.copy(tensors)
        file = _FileWithGaps()
        with skip_data():
            torch.save(with_tensors(state, iter(self._memory.views)), file)  # type: ignore[arg-type]
        return self._memory.placed(file.pieces)

    def ready(self) -> bool:
        """Whether the whole copy has arrived on the host."""
        copied = self._memory.copied if self._memory else None
        return copied is None or bool(copied.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Wait until the whole copy has arrived on the host."""
        if self._memory and self._memory.copied:
            self._memory.copied.synchronize()

    def close(self) -> None:
        """Give the memory back."""
        if self._memory:
            self._memory.close()
            self._memory = None


class _FileWithGaps:
    """A file as torch.save writes it: `pieces` are contents, and lengths of the storages that it skipped."""

    def __init__(self) -> None:
        self.pieces: list[bytes | int] = []
        self._at = 0

    def write(self, content: bytes) -> int:
        self.pieces.append(bytes(content))
        self._at += len(content)
        return len(content)

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        to = self._at + offset if whence == os.SEEK_CUR else offset
        if to > self._at:
            self.pieces.append(to - self._at)
        self._at = to
        return to

    def flush(self) -> None:
        """Nothing is kept back."""


def tensors_of(state: Any) -> Iterator[Tensor]:
    """The strided tensors within nested dicts, lists and tuples, in order."""
    if isinstance(state, Tensor):
        if state.layout == torch.strided:
            yield state
    elif isinstance(state, (dict, list, tuple)):
        for value in state.values() if isinstance(state, dict) else state:
            yield from tensors_of(value)


def with_tensors(state: Any, tensors: Iterator[Any]) -> Any:
    """The same state with other tensors, in the order of `tensors_of`."""
    if isinstance(state, Tensor):
        return next(tensors) if state.layout == torch.strided else state
    if isinstance(state, dict):
        found = copy.copy(state)  # of the same kind, with the attributes of a module's state
        for name, value in state.items():
            found[name] = with_tensors(value, tensors)
        return found
    if isinstance(state, (list, tuple)):
        values = [with_tensors(value, tensors) for value in state]
        return values if isinstance(state, list) else tuple(values)
    return state


def without_numbers(state: Any) -> Any:
    """The same state with empty tensors. Raises TypeError for those that `Snapshot` cannot copy: DTensors, sparse."""
    if layouts := _others(state):
        raise TypeError(f"it has a tensor with the layout {layouts.pop()}")
    return with_tensors(state, map(_empty, tensors_of(state)))


def _others(state: Any) -> set[torch.layout]:
    """The layouts of the tensors that are not strided."""
    if isinstance(state, Tensor):
        return {state.layout} - {torch.strided}
    if isinstance(state, (dict, list, tuple)):
        return set().union(*map(_others, state.values() if isinstance(state, dict) else state))
    return set()


def _empty(tensor: Tensor) -> Tensor:
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        raise TypeError(f"it has a {type(tensor).__name__}")
    return tensor.new_empty(0)
