"""The dtypes of vectors in memory and on the wire."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def wire_dtype(vector: Tensor, wire: torch.dtype) -> torch.dtype:
    """A vector's dtype on the wire: `wire` for fp32, else its own. Raises ValueError for a dtype without support."""
    if vector.dtype not in DTYPES.values():
        raise ValueError(f"a vector of {vector.dtype} cannot be reduced: use float32, float16 or bfloat16")
    return wire if vector.dtype == torch.float32 else vector.dtype
