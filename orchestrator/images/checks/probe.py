"""Reports the packages and libraries that a Python finds: run inside the image, and on the host for its PMIx.

The image's Python gets it as text (`python -c`), so it needs only Python 3.5 or newer, and no module that Debian's
python3-minimal lacks, such as json and ctypes. It prints a dictionary of texts, lists, None, True and False.
"""

import importlib
import sys


def torch_facts() -> dict:  # type: ignore[type-arg]
    """Versions and GPU architectures of torch. Without a GPU get_arch_list() is empty, but the flags are not."""
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a broken torch fails in many ways, and all of them belong in the report
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
        except Exception:  # torch was built without it
            facts[name] = None
    return facts


def libraries() -> dict:  # type: ignore[type-arg]
    """The version text of libpmix, as in 'OpenPMIx 4.2.2 (...)', and the load error of libibverbs, '' if it loads."""
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
    """Whether `python -m torusrun.training` finds its package."""
    try:
        from importlib import util

        return util.find_spec("torusrun.training.__main__") is not None
    except ImportError:
        return False


if __name__ == "__main__":
    found = {"python": ".".join(map(str, sys.version_info[:3])), "training": has_training()}
    found.update(libraries())
    found.update({} if "--host" in sys.argv else torch_facts())
    print("TORUSRUN-PROBE " + repr(found))
