"""The dtypes of vectors, and of what travels."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def wire_dtype(vector: Tensor, wire: torch.dtype) -> torch.dtype:
    """How a vector travels: fp32 as `wire`, others as they are. Raises ValueError for a dtype that is no gradient's."""
    if vector.dtype not in DTYPES.values():
        raise ValueError(f"a vector of {vector.dtype} cannot be reduced: use float32, float16 or bfloat16")
    return wire if vector.dtype == torch.float32 else vector.dtype
