"""Pyxis, a plug-in of Slurm that starts the ranks of srun in a container of enroot: its options and its rank command.

srun itself puts the ranks into the container, so the wrapper of a rank runs inside, by the image's own Python. All
ranks of a node share one container, which enroot unpacks to the node's disk. Options and behaviour: Pyxis 0.24 and
enroot 4.1.2, seen with Slurm 22.05.8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.images.command import Bind, passes

NAME = "pyxis"  # the word of 'container.runtime'
OPTION = "--container-image"
WRAPPER = "/opt/torusrun-rank"  # the folder in the container that holds what the wrapper imports
PACKAGES = ("orchestrator", "training")
ALWAYS = "LANG"  # `srun --export=` without a name would pass all variables on
# enroot does not know a SIF's own variables, which these files set. Those of an image of Docker: /etc/environment.
START = 'for each in /.singularity.d/env/*.sh; do if [ -r "$each" ]; then . "$each"; fi; done; exec "$@"'
# What enroot's hook for NVIDIA's GPUs reads; it does nothing for an image that does not set the first.
GPUS = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "void"}


def used(runtime: str | None) -> bool:
    """Whether a site's 'container.runtime' is Pyxis."""
    return runtime == NAME


def is_offered(help_text: str) -> bool:
    """Whether `srun --help` lists the options of Pyxis. Slurm's own --container is for something else."""
    return re.search(rf"^\s*{OPTION}=", help_text, re.MULTILINE) is not None


def options(
    image: str, binds: Iterable[Bind], directory: str, *, writable: bool = False, extra: Sequence[str] = ()
) -> list[str]:
    """The options of srun for ranks in `image`, with `directory` as their working directory.

    Raises ValueError for a bind with a colon or comma in a path: Pyxis splits mounts there, and has no escape.
    """
    return [
        f"{OPTION}={image}",
        f"--container-mounts={','.join(map(_mount, [*binds, *_wrapper()]))}",
        f"--container-workdir={directory}",
        "--no-container-mount-home",
        "--no-container-remap-root",
        "--no-container-entrypoint",
        "--container-writable" if writable else "--container-readonly",
        *extra,
    ]


def _mount(bind: Bind) -> str:
    if any(mark in path for path in (bind.host, bind.inside) for mark in ":,"):
        raise ValueError(f"Pyxis splits mounts at ':' and ',', and this path has one: {bind.host!r}")
    return str(bind)


def _wrapper() -> list[Bind]:
    here = Path(__file__).resolve().parents[2]
    return [Bind(str(here / name), f"{WRAPPER}/{name}", read_only=True) for name in PACKAGES]


def rank(module: str, *arguments: str | Path) -> list[str]:
    """The command that runs a module of torusrun by the image's Python."""
    return ["/bin/sh", "-c", START, "torusrun", *process.module("python3", module, *arguments, root=WRAPPER)]


def exported(names: Iterable[str]) -> tuple[str, ...]:
    """The variables of a job that its ranks get: with all of them, the host's paths would come into the image."""
    return tuple(sorted({ALWAYS, *(name for name in names if passes(name))}))


def beside(nsenter: str, wrapper: int, directory: str, command: Sequence[str]) -> list[str]:
    """The command that enters the container of a rank's wrapper, on its host, and runs `command` in a folder there.

    The folder is entered inside: nsenter's own --wd opens it on the host.
    """
    spaces = ["--user", "--mount", "--preserve-credentials"]
    return [nsenter, f"--target={wrapper}", *spaces, "/bin/sh", "-c", 'cd "$0" && exec "$@"', directory, *command]
