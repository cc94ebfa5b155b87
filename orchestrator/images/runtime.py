"""The container runtime of this machine, and the features of its version.

Apptainer, SingularityCE and SingularityPRO have one origin (Singularity 3.8), so the same words start them. They differ
in the command, in the prefix of the variables that they pass on, and in the features of their versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError

Version = tuple[int, ...]
COMMANDS = ("apptainer", "singularity")
ASKING_S = 30.0
PREFIXES = ("APPTAINER", "SINGULARITY")
# The variables of a runtime that stay as they are: those of fetching, caching and packing. All others act like options,
# and modules set some (APPTAINER_BIND, SINGULARITY_NO_MOUNT). MKSQUASHFS_ARGS, as in '-comp lz4', is of Apptainer 1.4
# (cmd/internal/cli/build.go).
KEPT = (
    "CACHEDIR", "CONFIGDIR", "TMPDIR", "DISABLE_CACHE", "DOCKER_HOST", "DOCKER_USERNAME", "DOCKER_PASSWORD", "AUTHFILE",
    "MKSQUASHFS_ARGS",
)  # fmt: skip

# word: (the first Singularity that has it, the first Apptainer); None: no version has it. SingularityCE and PRO count
# as Singularity. From the changelogs of both projects; values marked "from memory" are in neither.
SINCE: dict[str, tuple[Version | None, Version | None]] = {
    "--nv": ((2, 3), (1, 0)),  # from memory: 2.3
    "--nvccli": ((3, 9), (1, 0)),
    "--rocm": ((3, 5), (1, 0)),
    "--no-eval": ((3, 10), (1, 1)),  # without it a shell evaluates the passed values (sylabs/singularity#704)
    "--writable-tmpfs": ((3, 0), (1, 0)),
    "--fakeroot": ((3, 3), (1, 0)),  # from memory: 3.3
    "build --bind": ((3, 8), (1, 0)),  # before, a build took the binds of the environment
}


@dataclass(frozen=True)
class Runtime:
    """A container runtime: its command, its product name, and its version."""

    command: str
    product: str  # apptainer, singularity, singularity-ce or singularity-pro
    version: Version

    @property
    def family(self) -> str:
        """The product whose version numbers these are: apptainer or singularity."""
        return "apptainer" if self.product == "apptainer" else "singularity"

    @property
    def prefix(self) -> str:
        """The prefix of its own variables, as in APPTAINER_TMPDIR; APPTAINERENV_X is X in the container."""
        return self.family.upper()

    def has(self, word: str) -> bool:
        """Whether this version has an option of SINCE."""
        since = self._since(word)
        return since is not None and self.version >= since

    def lacks(self, word: str) -> str:
        """Why an option or a command of SINCE cannot be used, in words; '' if it can."""
        if self.has(word):
            return ""
        since = self._since(word)
        name = self.family.capitalize()
        return f"{self} has no {word}, {f'{name} has it from {dotted(since)} on' if since else f'nor has any {name}'}"

    def _since(self, word: str) -> Version | None:
        singularity, apptainer = SINCE[word]
        return apptainer if self.family == "apptainer" else singularity

    def __str__(self) -> str:
        return f"{self.product} {dotted(self.version)}"


def dotted(version: Version) -> str:
    """A version as text, as in 1.4.5."""
    return ".".join(map(str, version))


PRODUCT = re.compile(r"\b(apptainer|singularity(?:-?ce|-?pro)?)\s+version\s+v?(\d+(?:\.\d+)+)", re.IGNORECASE)
BARE = re.compile(r"^\s*()v?(\d+(?:\.\d+)+)", re.MULTILINE)  # Singularity until 3.0


def parse_version(command: str, output: str) -> Runtime:
    """A runtime from the output of `--version`. Raises SiteError if it names no version."""
    match = PRODUCT.search(output) or BARE.search(output)  # sites print lines before it
    if not match:
        raise SiteError(f"{command} --version said {output.strip()!r}, which is not a version")
    product = re.sub("-?(ce|pro)$", r"-\1", (match[1] or "singularity").lower())
    return Runtime(command, product, tuple(int(n) for n in match[2].split(".")))


def find(command: str | None = None, environment: Mapping[str, str] | None = None) -> Runtime | None:
    """The runtime of this machine: the site's `command`, else apptainer or singularity; None if there is none.

    It is searched and run in `environment`, by default the current one. Raises SiteError if it does not answer.
    """
    path = which(*([command] if command else COMMANDS), environment=environment)
    if path is None:
        return None
    # `singularity` is often apptainer under its old name, so its output counts, not its name.
    answer = process.run([path, "--version"], timeout_s=ASKING_S, environment=environment)
    return parse_version(path, answer.check("asking the version").stdout)


def required(command: str | None = None) -> Runtime:
    """The runtime that `find` finds. Raises SiteError with advice if there is none."""
    if runtime := find(command):
        return runtime
    names = command or " or ".join(COMMANDS)
    raise SiteError(f"{names}: not found on this machine; load its module, or set 'container.runtime' of the site")


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment to start a runtime in, without the login shell's options and variables for every container.

    Only the image file and the site decide which parts of the host a run or a build sees.
    """
    kept = {f"{prefix}_{name}" for prefix in PREFIXES for name in KEPT}
    return {name: value for name, value in environment.items() if not name.startswith(PREFIXES) or name in kept}
