"""A copy of a state in memory that is shared with the process that writes it.

All tensors of one type lie side by side in one piece, and the training continues once they are copied. On a GPU they
are first copied on the device, which takes as long as one pass over its memory. One copy in a stream of its own then
brings them to the host beside the next steps. torch.save writes the rest of the file, without the tensors
(torch.serialization.skip_data): `torch.load` reads the result like any other, but the CRC that the format has for a
tensor is not computed. The manifest has a SHA-256 of the whole file.
"""

from __future__ import annotations

import copy
import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.serialization import skip_data

from torusrun.training.optim.kernel import is_dense

ALIGNED_BYTES = 64
Kind = tuple[torch.dtype, str]  # the type of numbers, and the kind of device that holds them
Layout = tuple[Kind, tuple[int, ...], tuple[int, ...]]  # with the shape and the strides of the copy


class Places:
    """The places of tensors with given layouts: `sections` have (offset, length) in bytes, `begins` count numbers.

    The first `head_bytes` stay free.
    """

    def __init__(self, layouts: Sequence[Layout], head_bytes: int = 0) -> None:
        self.layouts, counts = list(layouts), dict[Kind, int]()
        self.begins = []
        for kind, shape, _ in self.layouts:
            self.begins.append(counts.get(kind, 0))
            counts[kind] = self.begins[-1] + torch.Size(shape).numel()
        self.sections: dict[Kind, tuple[int, int]] = {}
        self.bytes = head_bytes
        for kind, count in counts.items():
            self.sections[kind] = self.bytes, max(count, 1) * kind[0].itemsize
            self.bytes += -(-self.sections[kind][1] // ALIGNED_BYTES) * ALIGNED_BYTES

    def on(self, mapped: mmap.mmap) -> dict[Kind, Tensor]:
        """The sections in a memory. Raises ValueError if it is too short."""
        return {
            kind: torch.frombuffer(mapped, dtype=kind[0], count=length // kind[0].itemsize, offset=offset)
            for kind, (offset, length) in self.sections.items()
        }

    def views(self, sections: dict[Kind, Tensor]) -> list[Tensor]:
        """Each tensor within the `sections`, without those of kinds that these lack."""
        placed = zip(self.layouts, self.begins, strict=True)
        return [
            sections[kind].as_strided(shape, strides, begin)
            for (kind, shape, strides), begin in placed
            if kind in sections
        ]


class SharedMemory:
    """Shared memory for tensors of given types, shapes and strides: `views` are their places in it.

    `opened` makes the file, of so many bytes. Raises OSError without room for it.
    """

    def __init__(self, tensors: list[Tensor], head_bytes: int = 0, opened: Callable[[int], int] | None = None) -> None:
        self._places = Places([layout(tensor) for tensor in tensors], head_bytes)
        self._bytes = self._places.bytes
        self.descriptor, self._mapped = _mapped(max(self._bytes, 1), opened or nameless)
        self._closed = weakref.finalize(self, os.close, self.descriptor)  # also if an attempt of this process is over
        self._closed.atexit = False
        self._host = self._places.on(self._mapped)
        self.views = self._places.views(self._host)
        self.copied: torch.cuda.Event | None = None
        self._staged: dict[Kind, Tensor] = {}
        self._locked = False
        if any(tensor.is_cuda for tensor in tensors):
            with suppress(torch.cuda.OutOfMemoryError):  # then the training waits for the whole copy to the host
                self._stage(tensors)

    def fits(self, tensors: list[Tensor]) -> bool:
        """Whether these tensors have the same types, shapes and strides."""
        return self._places.layouts == [layout(tensor) for tensor in tensors]

    @torch.no_grad()
    def copy(self, tensors: list[Tensor]) -> None:
        """Copy the tensors; those of a GPU have arrived when the event `copied` has, if it is set."""
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
        if gaps != [length for _, length in self._places.sections.values()]:
            raise RuntimeError("a checkpoint can hold strided tensors only: the model or the optimizer has others")
        sections, parts, contents = iter(self._places.sections.values()), [], b""
        begins = self._bytes
        for piece in pieces:
            if isinstance(piece, int):
                parts += [(begins, self._bytes + len(contents) - begins), next(sections)]
                begins = self._bytes + len(contents)
            else:
                contents += piece
        self.append(contents)
        return [*parts, (begins, self._bytes + len(contents) - begins)]

    def append(self, contents: bytes) -> int:
        """Put `contents` behind the tensors, in place of any before; returns their offset. Raises OSError."""
        os.ftruncate(self.descriptor, self._bytes + len(contents))
        if contents:
            os.posix_fallocate(self.descriptor, self._bytes, len(contents))
        written = 0
        while written < len(contents):  # a memory that is nearly full takes a part without an error
            count = os.pwrite(self.descriptor, contents[written:], self._bytes + written)
            if not count:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += count
        return self._bytes

    def close(self) -> None:
        """Give the memory back, once nothing is copied to it any more."""
        if self.copied:
            self.copied.synchronize()
        if self._locked:
            torch.cuda.cudart().cudaHostUnregister(self._address)  # type: ignore[no-untyped-call]
        self._closed()

    @property
    def _address(self) -> int:
        return torch.frombuffer(self._mapped, dtype=torch.uint8).data_ptr()

    def _stage(self, tensors: list[Tensor]) -> None:
        """Make room on the device, if it has some, and let the device copy straight to the shared memory."""
        device = next(tensor.device for tensor in tensors if tensor.is_cuda)
        kinds = [kind for kind in self._places.sections if kind[1] == "cuda"]
        if torch.cuda.mem_get_info(device)[0] < sum(self._places.sections[kind][1] for kind in kinds):
            return  # the steps need the memory that PyTorch's allocator keeps
        self._staged = {kind: torch.empty_like(self._host[kind], device=device) for kind in kinds}
        self._staged_views = self._places.views(self._staged)
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


def layout(tensor: Tensor) -> Layout:
    """The layout of a tensor's copy: the strides are those of the tensor if its numbers lie side by side."""
    strides = tensor.stride() if is_dense(tensor) else torch.empty(tensor.shape, device="meta").stride()
    return (tensor.dtype, tensor.device.type), tuple(tensor.shape), tuple(strides)


def _mapped(size_bytes: int, opened: Callable[[int], int]) -> tuple[int, mmap.mmap]:
    descriptor = opened(size_bytes)
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)  # to write to a memory that is then full would end the process
        return descriptor, mmap.mmap(descriptor, size_bytes)
    except OSError:
        os.close(descriptor)
        raise


def nameless(size_bytes: int) -> int:
    """A new file in memory, which ends with its last user."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("checkpoint")
    with tempfile.TemporaryFile(dir="/dev/shm") as file:  # a Python that was built for an older Linux, such as conda's
        return os.dup(file.fileno())


class Snapshot:
    """The newest copy of a state. `descriptor` is the open file of the shared memory.

    The first `head_bytes` of it stay free; `opened` makes the file, of so many bytes, which otherwise has no name.
    """

    def __init__(self, head_bytes: int = 0, opened: Callable[[int], int] | None = None) -> None:
        self._head_bytes, self._opened = head_bytes, opened
        self._memory: SharedMemory | None = None

    @property
    def begun(self) -> bool:
        """Whether it has a `descriptor`."""
        return self._memory is not None

    @property
    def descriptor(self) -> int:
        assert self._memory, "nothing was copied yet"
        return self._memory.descriptor

    def take(self, state: dict[str, Any]) -> list[tuple[int, int]]:
        """Copy a state; returns the parts of its file within the shared memory, as (offset, length).

        Raises OSError without memory for it, and RuntimeError for tensors that are not strided.
        """
        tensors = list(tensors_of(state))
        if self._memory is None or not self._memory.fits(tensors):
            self.close()  # also if the next memory finds no room
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


def parts_of(state: Any) -> Iterator[Any]:
    """A state, and all that its nested dicts, lists and tuples have, in order."""
    yield state
    if isinstance(state, (dict, list, tuple)):
        for value in state.values() if isinstance(state, dict) else state:
            yield from parts_of(value)


def tensors_of(state: Any) -> Iterator[Tensor]:
    """The strided tensors of a state, in order."""
    return (part for part in parts_of(state) if isinstance(part, Tensor) and part.layout == torch.strided)


def with_tensors(state: Any, tensors: Iterator[Any]) -> Any:
    """The same state with other tensors, in the order of `tensors_of`."""
    if isinstance(state, Tensor):
        return next(tensors) if state.layout == torch.strided else state
    if isinstance(state, dict):
        changed = copy.copy(state)  # of the same kind, with the attributes of a module's state
        for name, value in state.items():
            changed[name] = with_tensors(value, tensors)
        return changed
    if isinstance(state, (list, tuple)):
        values = [with_tensors(value, tensors) for value in state]
        return values if isinstance(state, list) else tuple(values)
    return state
