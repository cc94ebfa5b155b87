"""Which container runtime there is, and what its version can do.

Apptainer, SingularityCE and SingularityPRO come from one root (Singularity 3.8), so the same words start them; what
differs is the command, the prefix of the variables it hands in, and what its age allows.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator import process
from orchestrator.errors import SiteError

Version = tuple[int, ...]
COMMANDS = ("apptainer", "singularity")
ASKING_S = 30.0
PREFIXES = ("APPTAINER", "SINGULARITY")
BINDS = {f"{prefix}_{name}" for prefix in PREFIXES for name in ("BIND", "BINDPATH", "MOUNT")}


@dataclass(frozen=True)
class Runtime:
    """A container runtime: its command, what it calls itself, and its version."""

    command: str
    product: str  # apptainer, singularity, singularity-ce or singularity-pro
    version: Version

    @property
    def family(self) -> str:
        """apptainer or singularity: whose version numbers these are."""
        return "apptainer" if self.product == "apptainer" else "singularity"

    @property
    def prefix(self) -> str:
        """What its own variables begin with, as in APPTAINER_TMPDIR."""
        return self.family.upper()

    @property
    def environment_prefix(self) -> str:
        """A variable with this prefix reaches the container without it."""
        return f"{self.prefix}ENV_"

    @property
    def keeps_values(self) -> bool:
        """Whether --no-eval exists: without it, values handed in are evaluated by a shell (sylabs/singularity#704)."""
        return self.version >= ((1, 1) if self.family == "apptainer" else (3, 10))

    @property
    def has_fakeroot(self) -> bool:
        """Whether `build --fakeroot` exists (Singularity 3.3; from memory)."""
        return self.family == "apptainer" or self.version >= (3, 3)

    @property
    def takes_mksquashfs_args(self) -> bool:
        """Whether `build --mksquashfs-args` exists (Apptainer 1.2, SingularityCE 4.0; from memory)."""
        return self.version >= ((1, 2) if self.family == "apptainer" else (4, 0))

    def __str__(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.version))}"


def parse_version(command: str, said: str) -> Runtime:
    """A runtime from what `--version` printed. Raises SiteError when that is no version."""
    match = re.search(r"(?:(apptainer|singularity(?:-?ce|-?pro)?)\s+version\s+)?v?(\d+(?:\.\d+)+)", said, re.IGNORECASE)
    if not match:
        raise SiteError(f"{command} --version said {said.strip()!r}, which is no version")
    product = re.sub("-?(ce|pro)$", r"-\1", (match[1] or "singularity").lower())
    return Runtime(command, product, tuple(int(n) for n in match[2].split(".")))


def find(command: str | None = None) -> Runtime | None:
    """The runtime of this machine: `command` if the site names one, else apptainer or singularity; None without one."""
    places = process.absolute_only(os.environ.get("PATH", os.defpath))
    names = [command] if command else COMMANDS
    path = next((found for name in names if (found := shutil.which(str(name), path=places))), None)
    if path is None:
        return None
    # `singularity` is often apptainer under its old name, so what it says counts, not what it is called.
    return parse_version(path, process.run([path, "--version"], timeout_s=ASKING_S).check("asking the version").stdout)


def required(command: str | None = None) -> Runtime:
    """Like `find`. Raises SiteError saying what to do when there is none."""
    if runtime := find(command):
        return runtime
    names = command or " or ".join(COMMANDS)
    raise SiteError(f"{names}: not found on this machine; load its module, or set 'container.runtime' of the site")


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment to start a runtime in, without what the login shell binds or sets in every container.

    Only the image file and the site decide what a run or a build sees of the host.
    """
    return {
        name: value
        for name, value in environment.items()
        if name not in BINDS and not name.startswith(tuple(f"{prefix}ENV_" for prefix in PREFIXES))
    }


def temporary_folder(runtime: Runtime, folder: Path) -> dict[str, str]:
    """The variables that make a build use `folder`, which should be node-local: fakeroot fails on many shared ones."""
    return {f"{runtime.prefix}_TMPDIR": str(folder), "TMPDIR": str(folder)}
