"""The card that the checks need: whether there is one, and what it is."""

from __future__ import annotations

import importlib.metadata
import platform
import time

import torch

from torusrun.training.collectives.device import libraries


def missing() -> str | None:
    """Why no card can be used, and what to do; None if one can."""
    if torch.cuda.is_available():
        return None
    if torch.version.cuda is None:
        return (
            f"no NVIDIA card can be used: torch {torch.__version__} is built without CUDA; "
            "install a build with CUDA on a machine with a card, and run `make gpu` there"
        )
    return (
        f"no NVIDIA card is visible to torch {torch.__version__}: run `make gpu` on a machine where `nvidia-smi` lists "
        "one, and look at CUDA_VISIBLE_DEVICES"
    )


def short_name() -> str:
    """The card's name for a file: "h200" for an NVIDIA H200."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return "-".join(name.lower().removeprefix("nvidia").split())


def facts(device: torch.device) -> str:
    """Date, card, and versions, in a line."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {platform.machine()}"
    versions = {"Python": platform.python_version(), "torch": torch.__version__, **libraries(device)}
    if device.type == "cuda":
        versions |= {"cudnn": str(torch.backends.cudnn.version()), "triton": _version("triton")}
    return f"{time.strftime('%F')}, {name}, " + ", ".join(f"{what} {version}" for what, version in versions.items())


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
