"""Reports the packages and libraries that a Python finds, inside an image or in the software of a site.

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


def verbs() -> dict:  # type: ignore[type-arg]
    """Why libibverbs does not load, '' if it does; {} if this Python cannot try."""
    try:
        import ctypes

        ctypes.CDLL("libibverbs.so.1")
    except ImportError:
        return {}
    except OSError as error:
        return {"verbs_error": str(error)[:300]}
    return {"verbs_error": ""}


def has_training() -> bool:
    """Whether `python -m torusrun.training` finds its package."""
    try:
        from importlib import util

        return util.find_spec("torusrun.training.__main__") is not None
    except ImportError:
        return False


if __name__ == "__main__":
    report = {"python": ".".join(map(str, sys.version_info[:3])), "training": has_training()}
    report.update(verbs())
    report.update(torch_facts())
    print("TORUSRUN-PROBE " + repr(report))
