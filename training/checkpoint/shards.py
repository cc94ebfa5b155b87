"""A state with DTensors, as the files of torch.distributed.checkpoint: to memory, and from a verified checkpoint.

PyTorch plans which rank saves what, and has the format: a file per rank, and `.metadata`, a pickle. Pickles run code.
So `.metadata` may have only the types that PyTorch writes into it, and other files only what `weights_only` permits.
PyTorch's `async_save` is not used: its process runs the main module of the script again, listens on a port without a
secret, and ends with the training; its thread takes the interpreter's time from the steps.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, Metadata
from torch.utils._pytree import tree_map_only

from torusrun.training.checkpoint.loading import REFUSED, Plain, RefusedCheckpoint
from torusrun.training.checkpoint.manifest import METADATA, STATE
from torusrun.training.checkpoint.snapshot import nameless
from torusrun.training.files.trusted import of_stream, open_own

Parts = list[tuple[int, int]]  # of a file: (offset, length) in the memory


class ShardSnapshot:
    """The newest copy of this rank's share of a state, in the open file `descriptor`; rank 0 has the plain parts."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group, self._plain = group, Plain()
        self.descriptor = nameless(0)

    def take(self, plain: dict[str, Any], sharded: dict[str, Any]) -> dict[str, Parts]:
        """Copy both; returns the files of this rank. All ranks call it together.

        Raises OSError on all ranks if a rank has no memory for it, ConfigError for what could not be loaded again.
        """
        self._plain.check({**plain, **tree_map_only(Tensor, lambda _: None, sharded)})
        memory = _Memory(self.descriptor)
        writer = dcp.FileSystemWriter(METADATA, sync_files=False)
        writer.fs, writer.path = memory, ""
        try:
            dcp.save(sharded, storage_writer=writer, process_group=self._group)
        except CheckpointException as failed:
            raise _first(failed) from None
        if METADATA in memory.files:
            state = io.BytesIO()
            torch.save(plain, state)
            with memory.create_stream(STATE, "wb") as stream:
                stream.write(state.getbuffer())
        return memory.files


def load_shards(path: Path, sha256: str, state: dict[str, Any], group: dist.ProcessGroup | None) -> None:
    """Load the checkpoint at `path` into the tensors of a state; it may be of another number of ranks.

    All ranks call it together, with the checksum of `.metadata`. Raises RefusedCheckpoint, or ValueError for the
    checkpoint of another state.
    """
    try:
        dcp.load(state, storage_reader=_Reader(path, sha256), planner=_LoadPlanner(), process_group=group)
    except CheckpointException as failed:
        first = _first(failed)
        if isinstance(first, RefusedCheckpoint):
            raise first from None
        raise ValueError(f"{path}: it cannot be loaded: {first}") from None


def _first(failed: CheckpointException) -> Exception:
    rank, (error, _) = min(failed.failures.items())
    if isinstance(error, OSError):
        return OSError(error.errno, f"rank {rank}: {error.strerror}")
    return error if isinstance(error, RefusedCheckpoint) else ValueError(f"rank {rank}: {error}")


class _Memory(FileSystem):
    """Files in a row in an open file; the first begins at 0, as DCP's offsets do."""

    def __init__(self, descriptor: int) -> None:
        self.files: dict[str, Parts] = {}
        self._descriptor, self._end = descriptor, 0

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[IO[bytes]]:  # type: ignore[override]
        with open(os.dup(self._descriptor), mode) as stream:
            begin = stream.seek(self._end)
            yield stream  # DCP may close it
        self._end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        self.files[Path(path).name] = [(begin, self._end - begin)]

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        self.files[Path(new_path).name] = self.files.pop(Path(path).name)

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return Path(path).name in self.files

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """The folder is made with the files that are written into it."""


class _Own(FileSystem):
    """The files of this user, open for reading."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[IO[bytes]]:  # type: ignore[override]
        """Open a file for reading, without following a link. Raises RefusedCheckpoint."""
        try:
            descriptor = open_own(Path(path))
        except OSError as error:
            raise RefusedCheckpoint(f"{path}: cannot be read: {error.strerror}; {REFUSED}") from None
        with open(descriptor, "rb") as stream:
            yield stream


class _Reader(dcp.FileSystemReader):
    """Reads a checkpoint whose `.metadata` has this checksum."""

    def __init__(self, path: Path, sha256: str) -> None:
        super().__init__(path)
        self.fs = self._files = _Own()
        self._sha256 = sha256
        self._refused: RefusedCheckpoint | None = None

    def read_metadata(self) -> Metadata:  # without arguments, by which PyTorch asks for files of single ranks
        try:
            return self._metadata(Path(self.path) / METADATA)
        except RefusedCheckpoint as refused:  # for which PyTorch would log a traceback here
            self._refused = refused
            return Metadata({}, storage_data={})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._refused:
            raise self._refused
        super().set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)

    def _metadata(self, path: Path) -> Metadata:
        with self._files.create_stream(path, "rb") as file:
            if of_stream(file) != self._sha256:
                raise RefusedCheckpoint(f"{path}: this is not the content that rank 0 has verified; {REFUSED}")
            file.seek(0)
            metadata = _Metadata(file).load()
        if not isinstance(metadata, Metadata):
            raise RefusedCheckpoint(f"{path}: it has a {type(metadata).__name__}; {REFUSED}")
        names = {place.relative_path for place in metadata.storage_data.values()}
        if others := [name for name in names if Path(name).name != name]:
            raise RefusedCheckpoint(f"{path}: it names a file in another folder: {others[0][:80]!r}; {REFUSED}")
        return metadata


def _member(kind: Any, name: str) -> Any:
    """In place of `getattr`, by which older Pythons pickle the members of an Enum."""
    if kind is not _MEM_FORMAT_ENCODING:
        raise pickle.UnpicklingError(f"an attribute of {kind}")
    return _MEM_FORMAT_ENCODING[name]


class _Metadata(pickle.Unpickler):
    """Loads only the types that PyTorch writes into `.metadata`; none of them runs code when it is made."""

    KNOWN = {
        "torch.distributed.checkpoint.metadata": {
            "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
            "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
        },
        "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
        "torch": {"Size", *(name for name, value in vars(torch).items() if isinstance(value, torch.dtype))},
        "torch.serialization": {"_get_layout"},
    }  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member
        if name not in self.KNOWN.get(module, ()):
            raise RefusedCheckpoint(f"its {METADATA} has a {module}.{name}; {REFUSED}")
        return super().find_class(module, name)


class _LoadPlanner(dcp.DefaultLoadPlanner):
    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        torch.load(value, weights_only=True)  # which raises before PyTorch loads the same bytes without this
        value.seek(0)
        super().load_bytes(read_item, value)

    def create_global_plan(self, plans: list[dcp.LoadPlan]) -> list[dcp.LoadPlan]:
        """Refuse a checkpoint with more than all ranks load, such as that of a larger model."""
        loaded = {item.dest_index.fqn for plan in plans for item in plan.items}
        assert self.metadata
        if more := sorted(self.metadata.state_dict_metadata.keys() - loaded):
            raise ValueError(f"it has {more[0]}, which the script does not have")
        return list(super().create_global_plan(plans))
