"""Asks a Python what it can find beside it: run inside the image (and on the host, for its PMIx).

It is handed to the image's Python as text (`python -c`), so it stands alone: any Python from 3.5 on, and no module that
Debian's python3-minimal lacks, as json and ctypes. It prints a dictionary of texts, lists, None, True and False.
"""

import importlib
import sys


def torch_facts() -> dict:  # type: ignore[type-arg]
    """Versions and GPU architectures of torch; get_arch_list() is empty without a GPU, the flags are not."""
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a broken torch fails in many ways, and all of them belong into the report
        return {"torch_error": str(error)[:300]}
    facts = {"torch": str(torch.__version__), "cuda": torch.version.cuda}
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


def libraries() -> dict:  # type: ignore[type-arg]
    """What libpmix says it is, as in 'OpenPMIx 4.2.2 (...)', and why libibverbs does not load, '' where it does."""
    try:
        import ctypes
    except ImportError:
        return {}
    facts = {"pmix": "", "verbs_error": ""}
    for name in ("libpmix.so.2", "libpmix.so", "libpmix.so.1"):
        try:
            ask = ctypes.CDLL(name).PMIx_Get_version
        except (OSError, AttributeError):
            continue
        ask.restype = ctypes.c_char_p
        facts["pmix"] = str(ask().decode())
        break
    try:
        ctypes.CDLL("libibverbs.so.1")
    except OSError as error:
        facts["verbs_error"] = str(error)[:300]
    return facts


def has_training() -> bool:
    """Whether `python -m training` finds its package."""
    try:
        from importlib import util

        return util.find_spec("training.__main__") is not None
    except ImportError:
        return False


if __name__ == "__main__":
    found = {"python": ".".join(map(str, sys.version_info[:3])), "training": has_training()}
    found.update(libraries())
    found.update({} if "--host" in sys.argv else torch_facts())
    print("TORUSRUN-PROBE " + repr(found))
