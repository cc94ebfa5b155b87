"""Asks a Python what it can find beside it: run inside the image (and on the host, for its PMIx), it prints JSON.

It is handed to the image's Python as text (`python -c`), so it stands alone: the standard library, and any Python
from 3.5 on.
"""

import ctypes
import importlib
import importlib.util
import json
import platform
import sys


def torch_facts() -> dict:  # type: ignore[type-arg]
    """Versions and GPU architectures of torch; get_arch_list() is empty without a GPU, the flags are not."""
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a broken torch fails in many ways, and all of them belong into the report
        return {"torch_error": str(error)[:300]}
    facts = {"torch": torch.__version__, "cuda": torch.version.cuda}
    flags = getattr(torch._C, "_cuda_getArchFlags", None)
    facts["architectures"] = (flags() or "").split() if flags else []
    for name, ask in (
        ("nccl", lambda: ".".join(map(str, torch.cuda.nccl.version()))),
        ("cudnn", lambda: str(torch.backends.cudnn.version())),
    ):
        try:
            facts[name] = ask() if facts["cuda"] else None  # type: ignore[no-untyped-call]
        except Exception:  # built without it
            facts[name] = None
    return facts


def pmix_version() -> str:
    """What libpmix says it is, as in 'OpenPMIx 4.2.2 (...)'; '' without one."""
    for name in ("libpmix.so.2", "libpmix.so", "libpmix.so.1"):
        try:
            ask = ctypes.CDLL(name).PMIx_Get_version
        except (OSError, AttributeError):
            continue
        ask.restype = ctypes.c_char_p
        return str(ask().decode())
    return ""


def has_training() -> bool:
    """Whether `python -m training` finds its package."""
    try:
        return importlib.util.find_spec("training.__main__") is not None
    except ImportError:
        return False


if __name__ == "__main__":
    print(
        "TORUSRUN-PROBE "
        + json.dumps(
            {
                "python": platform.python_version(),
                "glibc": platform.libc_ver()[1],
                "pmix": pmix_version(),
                "training": has_training(),
                **({} if "--host" in sys.argv else torch_facts()),
            }
        )
    )
