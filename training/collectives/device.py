"""The device of this rank, and its settings for repeatable arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def prepare(wanted: str, local_rank: int, precision: str = "fp32") -> torch.device:
    """The device for `wanted` (auto, cpu or cuda); a CPU rank gets one thread and repeatable arithmetic.

    It gets one thread because ranks share the cores, and because sums over threads depend on their number.
    """
    if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()):
        return _cuda(local_rank, precision == "tf32")
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms also imports the compiler: a second
    return torch.device("cpu")


@contextmanager
def without_trials() -> Iterator[None]:
    """Let cuDNN choose its algorithms without trying them: for shapes that are seen a few times only."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def backend(device: torch.device) -> str:
    """The collective library for the device."""
    return "nccl" if device.type == "cuda" else "gloo"


def libraries(device: torch.device) -> dict[str, str]:
    """The versions of a GPU's libraries; {} on the CPU."""
    if device.type != "cuda":
        return {}
    made_for = {"cuda": torch.version.cuda, "rocm": torch.version.hip, "nccl": _nccl()}
    return {name: version for name, version in made_for.items() if version}


def wait(device: torch.device) -> None:
    """Wait until the device has done all its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _nccl() -> str:
    """NCCL's version, as '2.27.3'; '' for a PyTorch without NCCL."""
    if not torch.distributed.is_nccl_available():
        return ""
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def _cuda(local_rank: int, tf32: bool) -> torch.device:
    """The visible GPU `local_rank`; GPU 0 if the launcher shows every rank only its own.

    cuDNN tries its algorithms for every new shape and keeps the fastest. Without `tf32` fp32 is not rounded to TF32;
    torch would do so in convolutions.
    """
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    visible = torch.cuda.device_count()
    device = torch.device("cuda", local_rank if local_rank < visible else 0)
    torch.cuda.set_device(device)
    return device
