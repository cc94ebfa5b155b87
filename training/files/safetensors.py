"""Files of tensors in the format safetensors: a length, a header of JSON, the bytes. Nothing in it is a program.

Source: the format's description, github.com/huggingface/safetensors (from memory).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torusrun.training.files.trusted import sync, unfinished

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LENGTH, LARGEST_HEADER = 8, 100_000_000
METADATA = "__metadata__"
READABLE = 0o644


def read(path: Path) -> dict[str, Tensor]:
    """The tensors by name. Raises OSError, or ValueError for another format."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(LENGTH), "little")
        if not 2 <= length <= LARGEST_HEADER:
            raise ValueError("this is not a safetensors file")
        try:
            header = json.loads(file.read(length))
        except ValueError:
            raise ValueError("this is not a safetensors file: its header is not JSON") from None
        content = bytearray(file.read())
    if not isinstance(header, dict):
        raise ValueError("this is not a safetensors file: its header is not an object")
    return {name: _tensor(name, entry, content) for name, entry in header.items() if name != METADATA}


def _tensor(name: str, entry: Any, content: bytearray) -> Tensor:
    try:
        dtype, shape, (begin, end) = DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        right = all(type(size) is int and size >= 0 for size in (*shape, begin, end))
    except (KeyError, TypeError, ValueError):
        right = False
    if not right or end > len(content) or end - begin != prod(shape) * dtype.itemsize:
        raise ValueError(f"the tensor {name[:80]!r} is not described in a way that is known, or the file is cut off")
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=prod(shape), offset=begin).reshape(shape).clone()


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write the tensors, in their order. Raises OSError, or ValueError for a type that the format does not have."""
    header: dict[str, Any] = {METADATA: dict(metadata)}
    at = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in NAMES:
            raise ValueError(f"the tensor {name!r} has the type {tensor.dtype}, which safetensors does not have")
        entry = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        header[name], at = entry, at + tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % LENGTH)
    with unfinished(path, path.with_name(f".tmp-{os.getpid()}-{path.name}"), READABLE) as file:
        file.write(len(text).to_bytes(LENGTH, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        sync(file)
