"""A copy of a state in memory that is shared with the process that writes it.

All tensors of one type lie side by side in one piece, and the training continues once they are copied. On a GPU they
are first copied on the device, which takes as long as one pass over its memory. One copy in a stream of its own then
brings them to the host beside the next steps. torch.save writes the rest of the file, without the tensors
(torch.serialization.skip_data): `torch.load` reads the result like any other, but the CRC that the format has for a
tensor is not computed. The manifest has a SHA-256 of the whole file.
"""

from __future__ import annotations

import copy
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.serialization import skip_data

from training.optim.kernel import is_dense

ALIGNED_BYTES = 64
Kind = tuple[torch.dtype, str]  # the type of numbers, and the kind of device that holds them


class Snapshot:
    """The newest copy of a state. `descriptor` is the open file of the shared memory."""

    def __init__(self) -> None:
        self._memory: _Memory | None = None

    @property
    def descriptor(self) -> int:
        assert self._memory, "nothing was copied yet"
        return self._memory.descriptor

    def take(self, state: dict[str, Any]) -> list[tuple[int, int]]:
        """Copy a state; returns the parts of its file within the shared memory, as (offset, length).

        Raises OSError if there is no memory for it, and RuntimeError for tensors that are not strided.
        """
        tensors = list(_tensors(state))
        if self._memory is None or not self._memory.fits(tensors):
            if self._memory:
                self._memory.close()
                self._memory = None  # also if there is no room for the next one
            self._memory = _Memory(tensors)
        self._memory.copy(tensors)
        file = _FileWithGaps()
        with skip_data():
            torch.save(_with(state, iter(self._memory.views)), file)  # type: ignore[arg-type]
        return self._memory.placed(file.pieces)

    def ready(self) -> bool:
        """Whether the whole copy has arrived on the host."""
        copied = self._memory.copied if self._memory else None
        return copied is None or bool(copied.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Wait until the whole copy has arrived on the host."""
        if self._memory and self._memory.copied:
            self._memory.copied.synchronize()


class _Memory:
    """Shared memory for tensors of given types, shapes and strides: `views` are their places in it."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._layouts = [_layout(tensor) for tensor in tensors]
        counts: dict[Kind, int] = {}
        begins = []
        for tensor in tensors:
            begins.append(counts.get(_kind(tensor), 0))
            counts[_kind(tensor)] = begins[-1] + tensor.numel()
        self._sections: dict[Kind, tuple[int, int]] = {}  # offset and length in bytes
        self._bytes = 0
        for kind, count in counts.items():
            self._sections[kind] = self._bytes, max(count, 1) * kind[0].itemsize
            self._bytes += -(-self._sections[kind][1] // ALIGNED_BYTES) * ALIGNED_BYTES
        self.descriptor, self._mapped = _shared(max(self._bytes, 1))
        self._host = {
            kind: torch.frombuffer(self._mapped, dtype=kind[0], count=length // kind[0].itemsize, offset=offset)
            for kind, (offset, length) in self._sections.items()
        }
        self.views = [_view(self._host[_kind(each)], begin, each) for each, begin in zip(tensors, begins, strict=True)]
        self.copied: torch.cuda.Event | None = None
        self._staged: dict[Kind, Tensor] = {}
        self._locked = False
        if any(tensor.is_cuda for tensor in tensors):
            with suppress(torch.cuda.OutOfMemoryError):  # then the training waits for the whole copy to the host
                self._stage(tensors, begins)

    def fits(self, tensors: list[Tensor]) -> bool:
        """Whether these tensors have the same types, shapes and strides."""
        return self._layouts == [_layout(tensor) for tensor in tensors]

    @torch.no_grad()
    def copy(self, tensors: list[Tensor]) -> None:
        """Copy the tensors; those of a GPU have arrived when the event `copied` has, if there is one."""
        for view, tensor in zip(self.views, tensors, strict=True):
            if not (self.copied and tensor.is_cuda):
                view.copy_(tensor)
        if self.copied is None:
            return
        torch._foreach_copy_(self._staged_views, [tensor for tensor in tensors if tensor.is_cuda])
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for kind, staged in self._staged.items():
                self._host[kind].copy_(staged, non_blocking=True)
            self.copied.record()

    def placed(self, pieces: list[bytes | int]) -> list[tuple[int, int]]:
        """The places of a file's pieces: contents are appended to the memory, gaps are the sections in their order."""
        gaps = [piece for piece in pieces if isinstance(piece, int)]
        if gaps != [length for _, length in self._sections.values()]:
            raise RuntimeError("a checkpoint can hold strided tensors only: the model or the optimizer has others")
        sections, parts, contents = iter(self._sections.values()), [], b""
        begins = self._bytes
        for piece in pieces:
            if isinstance(piece, int):
                parts += [(begins, self._bytes + len(contents) - begins), next(sections)]
                begins = self._bytes + len(contents)
            else:
                contents += piece
        os.ftruncate(self.descriptor, self._bytes + len(contents))
        os.pwrite(self.descriptor, contents, self._bytes)
        return [*parts, (begins, self._bytes + len(contents) - begins)]

    def close(self) -> None:
        """Give the memory back, once nothing is copied to it any more."""
        if self.copied:
            self.copied.synchronize()
        if self._locked:
            torch.cuda.cudart().cudaHostUnregister(self._address)  # type: ignore[no-untyped-call]
        os.close(self.descriptor)

    @property
    def _address(self) -> int:
        return torch.frombuffer(self._mapped, dtype=torch.uint8).data_ptr()

    def _stage(self, tensors: list[Tensor], begins: list[int]) -> None:
        """Make room on the device, if it has some, and let the device copy straight to the shared memory."""
        device = next(tensor.device for tensor in tensors if tensor.is_cuda)
        kinds = [kind for kind in self._sections if kind[1] == "cuda"]
        if torch.cuda.mem_get_info(device)[0] < sum(self._sections[kind][1] for kind in kinds):
            return  # the steps need again what PyTorch's allocator holds
        self._staged = {kind: torch.empty_like(self._host[kind], device=device) for kind in kinds}
        self._staged_views = [
            _view(self._staged[_kind(each)], begin, each)
            for each, begin in zip(tensors, begins, strict=True)
            if each.is_cuda
        ]
        self._lock()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def _lock(self) -> None:
        """Lock the shared memory's pages; without this the copy is right, too, but the host waits for it."""
        code = torch.cuda.cudart().cudaHostRegister(self._address, self._bytes, 0)  # type: ignore[no-untyped-call]
        self._locked = not int(code)
        if not self._locked:
            with suppress(RuntimeError):  # the runtime keeps the error, and the next kernel's launch would raise it
                next(iter(self._staged.values()))[:1].zero_()


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


def _shared(size_bytes: int) -> tuple[int, mmap.mmap]:
    """A new shared memory, which ends with its last user: its open file. Raises OSError if there is not so much."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("checkpoint")
    else:  # a Python that was built for an older Linux, such as conda's
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            descriptor = os.dup(file.fileno())
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)  # to write to a memory that is then full would end the process
        return descriptor, mmap.mmap(descriptor, size_bytes)
    except OSError:
        os.close(descriptor)
        raise


def _tensors(state: Any) -> Iterator[Tensor]:
    """The strided tensors within nested dicts, lists and tuples, in order."""
    if isinstance(state, Tensor):
        if state.layout == torch.strided:
            yield state
    elif isinstance(state, (dict, list, tuple)):
        for value in state.values() if isinstance(state, dict) else state:
            yield from _tensors(value)


def _with(state: Any, tensors: Iterator[Tensor]) -> Any:
    """The same state with other tensors, in the order of `_tensors`."""
    if isinstance(state, Tensor):
        return next(tensors) if state.layout == torch.strided else state
    if isinstance(state, dict):
        found = copy.copy(state)  # of the same kind, with the attributes of a module's state
        for name, value in state.items():
            found[name] = _with(value, tensors)
        return found
    if isinstance(state, (list, tuple)):
        values = [_with(value, tensors) for value in state]
        return values if isinstance(state, list) else tuple(values)
    return state


def _kind(tensor: Tensor) -> Kind:
    return tensor.dtype, tensor.device.type


def _layout(tensor: Tensor) -> tuple[Kind, torch.Size, tuple[int, ...]]:
    return _kind(tensor), tensor.shape, _stride(tensor)


def _stride(tensor: Tensor) -> tuple[int, ...]:
    """The strides of the copy: those of the tensor if its numbers lie side by side."""
    if is_dense(tensor):
        return tensor.stride()
    return torch.empty(tensor.shape, device="meta").stride()


def _view(section: Tensor, begin: int, like: Tensor) -> Tensor:
    return section.as_strided(like.shape, _stride(like), begin)
