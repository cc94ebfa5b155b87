"""LARS in C++ for float32 tensors on the CPU: lars.cpp, compiled at its first use."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from torch import Tensor

from torusrun.training.optim.kernel import Piece, Rule, Unavailable

SOURCE = Path(__file__).with_name("lars.cpp")
COMPILERS = ("c++", "g++", "clang++")
# No flag for this machine's CPU and no fused multiply-add: the bits are the same on every machine.
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-shared", "-fPIC")
COMPILE_LIMIT_S = 30.0


class _Constants(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_double) for name in ("kept", "decay", "ratio_decay", "trust", "eps", "rate")),
        *((name, ctypes.c_int) for name in ("rate_in_momentum", "ratio_in_momentum")),
    )


class Cpp:
    """Two passes over each tensor in one thread; the second reads the cache if the tensor fits."""

    def __init__(self, rule: Rule) -> None:
        """Raises Unavailable if lars.cpp cannot be compiled or loaded."""
        self.rule, self._library = rule, library()

    def move(self, pieces: Sequence[Piece], rate: float, change: float = 1.0) -> None:
        rule, keys = self.rule, self.rule.keys
        constants = _Constants(
            rule.momentum * change, rule.weight_decay, rule.ratio_decay, keys.trust, keys.eps, rate,
            keys.lr_in_momentum, keys.ratio_in_momentum,
        )  # fmt: skip
        tensors = [_addresses([piece[i] for piece in pieces]) for i in range(3)]  # type: ignore[misc]
        scaled = bytes(piece.scaled for piece in pieces)
        sizes = (ctypes.c_longlong * len(pieces))(*(piece.weight.numel() for piece in pieces))
        count = ctypes.c_longlong(len(pieces))
        self._library.lars_move(ctypes.byref(constants), count, sizes, scaled, *tensors)


@cache
def library() -> ctypes.CDLL:
    """lars.cpp as a library, compiled in a private folder that is removed. Raises Unavailable with the reason."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise Unavailable(f"there is no C++ compiler ({', '.join(COMPILERS)}) on PATH")
    try:
        with tempfile.TemporaryDirectory(prefix="torusrun-") as folder:
            path = Path(folder) / "lars.so"
            _compile([compiler, *FLAGS, str(SOURCE), "-o", str(path)])
            return ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(f"lars.cpp cannot be compiled or loaded: {error}") from None


def _compile(command: list[str]) -> None:
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=COMPILE_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} took longer than {COMPILE_LIMIT_S:g} s") from None
    if ended.returncode:
        errors = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise Unavailable(f"{command[0]} cannot compile lars.cpp: {errors[0]}")


def _addresses(tensors: list[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
