"""What a build prints: its phases as they run, and the problem of a failed build in one sentence with its remedy."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator

from torusrun.orchestrator.base.signals import signal_name

# Apptainer 1.4 and SingularityCE 4 write the lines that begin with INFO, `sh -x` in %post those that begin with +.
STARTS = (
    (r"INFO:\s+(?:Extracting local image|Fetching OCI image|Copying blob|Inserting Singularity)", "base"),
    (r"INFO:\s+Copying ", "files"),
    (r"\+ : (.*\S+:\d+: RUN .*)", "{}"),
    (r"\+ .*apt-get .*\b(?:update|install)\b", "Debian packages"),
    (r"\+ .*\bpip install\b", "Python packages"),
    (r"\+ \./configure\b", "MPI"),
    (r"INFO:\s+(?:Adding|Running testscript|Running test scriptlet)", "labels and test"),
    (r"INFO:\s+Creating SIF file", "packing"),
)  # fmt: skip
EXAMINE = "examining"
OF_RUN = re.compile(r"\S+:\d+: RUN ")
LONGEST = 70  # characters of a phase
# {x} is the first group of a match. A full disk makes all later steps fail with their own messages.
DISK = (
    r"(?i:no space left on device|disk quota exceeded)|Write failed because .*No space",
    "the disk is full; free space in the cache's folder or in the temporary one, or name another temporary folder",
)
# Problems of servers. All that match are reported.
SERVERS = (
    (r"x509: |(?i:certificate.?verify.?failed)|SSL certificate problem|Certificate verification failed",
     "a server's TLS certificate is not accepted; give the site's CA as 'ca_bundle' of 'secrets' in the image file"),
    (r"(?:Retry\(total=0\b|curl: |git|Err:).*(?i:Connection refused|timed out|Network is unreachable|No route to host)"
     r"|ConnectTimeoutError|Cannot initiate the connection to (\S+)",
     "a server does not answer ({x}); try again, or build with a wheelhouse, offline, from a local base"),
    (r"[Cc]ould not resolve host:? ?'?([^\s']*)|[Ff]ailure (?:in name resolution|resolving '([^']+)')"
     r"|lookup (\S+?):? .*no such host|Retry\(total=0\b.*Name or service not known",
     "{x} cannot be reached: its name cannot be resolved here; build with a wheelhouse, offline, from a local base"),
    (r"Could not fetch URL (\S+): 40[13] |Authentication failed for '([^']+)'",
     "{x} does not accept the login, or asks for one; correct 'secrets' of the image file"),
    (r"unauthorized: [^\n]*|(?i:authentication required)|requested access to the resource is denied",
     "the registry does not accept the login, or has no such image; correct 'base' of the image file, or log in "
     "(`apptainer registry login`)"),
)  # fmt: skip


class Phases:
    """Reports each phase of one build in a line when it begins."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock, self._began_s = say, clock, clock()
        self._name = ""

    def line(self, text: str) -> None:
        """A line of the runtime's output."""
        for pattern, name in STARTS:
            if match := re.match(pattern, text):
                inner = OF_RUN.match(self._name) and name in ("Debian packages", "Python packages", "MPI")
                if not inner:  # a RUN of a Dockerfile is the phase, whatever it starts
                    self.begin(_unquoted(match[1]) if name == "{}" else name)
                return

    def begin(self, name: str) -> None:
        if name != self._name:
            self._name = name
            self._say(f"{stamp(self._clock() - self._began_s)} {name}")


def _unquoted(shown: str) -> str:
    """A word as `sh -x` shows it, without its quotes."""
    try:
        return " ".join(shlex.split(shown))[:LONGEST]
    except ValueError:
        return shown[:LONGEST]


def stamp(seconds: float) -> str:
    """Seconds as 0:07 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# Other problems. Only the first that matches is reported.
KNOWN = (
    (r"HASHES FROM THE REQUIREMENTS FILE[\s\S]*?\n\s+(\S+) from",
     "the archive of {x} is not the one that its hash in the requirements names"),
    (r"Host key verification failed|Permission denied \(publickey",
     "a build has no SSH key; write git+https:// for git+ssh:// in the requirements, and the login of a private "
     "repository in 'secrets'"),
    (r"In --require-hashes mode, all requirements must have[^\n]*\n\s+(\S+)",
     "the requirements give some hashes, but none for {x}; `pip-compile --generate-hashes` writes them all"),
    (r"Unable to locate package (\S+)|Package '?(\S+?)'? has no installation candidate",
     "the Debian package {x} does not exist in the base's distribution; correct 'system' of the image file"),
    (r"Version '([^']+)' for '([^']+)' was not found",
     "the Debian package {1} has no version {0} in the base's distribution; correct 'system' of the image file"),
    (r"The user requested (.+?)(?: \(from .*)?\n\s+The user requested \(constraint\) (\S+)",
     "pip cannot install {0}: a constraint asks for {1}; ask for that version, or take the line out of the file of "
     "constraints (PIP_CONSTRAINT of the base names it) in a Dockerfile"),
    (r"The conflict is caused by:\n\s+(.+)\n\s+(.+)", "two packages exclude each other: {0}, and {1}; correct one"),
    (r"error: externally-managed-environment",
     "the base's Python refuses pip (PEP 668); write `ENV PIP_BREAK_SYSTEM_PACKAGES=1` or a venv into the Dockerfile"),
    (r"(?m)^error: [a-z]+(?:-[a-z]+)+$\s+× (.+)", "pip: {0}"),
    (r"satisfies the requirement (\S+).*\(from versions: none\)",
     "no Python package {x} in any index or the wheelhouse; correct 'python' of the image file, or add its wheel"),
    (r"No matching distribution found for (\S+)|satisfies the requirement (\S+)",
     "no Python package {x}; correct 'python' of the image file, or add its wheel to the wheelhouse"),
    (r"(torusrun: offline, .+)", "{0}"),
    (r"(torch has no kernels for .+)", "{0}; take a PyTorch built for it"),
    (r"computed checksums? did NOT match", "the MPI's source archive is not the one that 'mpi.sha256' names"),
    (r"manifest unknown|MANIFEST_UNKNOWN|name unknown|reading manifest .+",
     "the base image does not exist in its registry (or is private); correct 'base' of the image file"),
    (r"destination /mnt doesn't exist",
     "the base has no folder /mnt, where a build finds its secrets, wheels and requirements; take a base that has one"),
    (r"(?:unable to open|not open|while opening|failed to open) (?:image |file )?\S*base\b|image format not recogni",
     "the base cannot be opened as an image; check 'base' of the image file"),
    (r"Unable to fetch some archives|Failed to fetch (\S+)|The requested URL returned error",
     "a download failed ({x}); try again, or use a mirror"),
    (r"no (?:valid )?mapping entry found in /etc/sub[ug]id|newuidmap|fakeroot.*(?:not found|failed)",
     "--fakeroot needs an entry for you in /etc/subuid and /etc/subgid; ask for one, or build without fakeroot"),
    (r"user namespace.*(disabled|not permitted|not allowed)|[Ff]ailed to create user namespace",
     "this machine gives users no user namespaces; build on another one and copy the image"),
    (r"You must be (?:the )?root", "this runtime builds as root only; use --fakeroot, or build on another machine"),
    (r"unknown flag: (\S+)", "this runtime is too old for {x}; load a newer one"),
)  # fmt: skip


def explain(log: str, exit_code: int) -> str:
    """The problem, in one line without the path of the log. `exit_code` is negative for a signal."""
    if causes := [*_causes(log, DISK)] or [*_causes(log, *SERVERS)] or [*_causes(log, *KNOWN)][:1]:
        return "; also, ".join(causes)
    if exit_code < 0:
        return f"the build was killed by {signal_name(-exit_code)}; start it again"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    fatal = [line for line in lines if re.match(r"FATAL|E:|ERROR|error", line)]
    telling = [
        line for line in fatal if not re.search(r"exit status \d+$", line)
    ]  # such a line has no other information
    if fatal and not telling:
        own = [line for line in lines if not re.match(r"FATAL|INFO|WARNING|\+ ", line)]
        section = re.search(r"%\w+(?= section)", fatal[-1])
        telling = [f"{section[0] if section else fatal[-1]}: {own[-1]}" if own else fatal[-1]]
    return f"it ended with exit code {exit_code}: {(telling or lines or ['it printed nothing'])[-1][:300]}"


def _causes(log: str, *known: tuple[str, str]) -> Iterator[str]:
    """The sentences of the patterns that match."""
    for pattern, sentence in known:
        if match := re.search(pattern, log):
            yield sentence.format(*match.groups(), x=next(filter(None, match.groups()), "it"))
