"""Starts other programs; no other file of torusrun starts any.

Arguments are lists, never text for a shell. Every call has a timeout. Programs that are asked write English messages
(`LC_ALL=C`) and do not get the variables of torusrun's own job or MPI launcher. `CALLS` counts the calls of each
program, so that tests can check how often a scheduler is queried.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from torusrun.orchestrator.base import proc
from torusrun.orchestrator.base.environment import clean_environment, jobs_environment, safe
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.shipped import ROOT

CALLS: Counter[str] = Counter()
SHELL_MARK, SHELL_S = "torusrun-environment", 20.0  # a shell's output before the mark is not the environment
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
WAS_RUNNING = "; was running: "
ENTRY = Path("training", "entry")  # below it: the folder that has nothing but the package `torusrun`
LONGEST_OUTPUT = 4000  # the most characters of a program's output in an error

# `python -c` and `python -m` search the working directory for modules first; the option against that (-P) came with
# Python 3.11. This line works in all versions. It has no quotes, so that every shell can pass it on.
ELSEWHERE = "import sys; sys.path[:] = [p for p in sys.path if p]; "


class NoAnswer(SiteError):
    """A program did not end in time. Whether it did its task is unknown."""

    @property
    def brief(self) -> str:
        """The error without the command, which may have thousands of job ids."""
        return str(self).partition(WAS_RUNNING)[0]


@dataclass(frozen=True)
class Streams:
    """The descriptors from which a program reads its input, and to which it writes its output."""

    input: int
    output: int


STANDARD = Streams(0, 1)


@dataclass(frozen=True)
class Finished:
    """A program that has ended, and its output."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str

    def check(self, doing: str) -> Finished:
        """Return self, or raise SiteError with the failed action and the program's output."""
        if self.exit_code == 0:
            return self
        output = self.stderr.strip() or self.stdout.strip() or "it said nothing"
        if len(output) > LONGEST_OUTPUT:
            output = f"{output[: LONGEST_OUTPUT // 2]} [...] {output[-LONGEST_OUTPUT // 2 :]}"
        raise SiteError(f"{doing}: {self.argv[0]} ended with exit code {self.exit_code}: {output}")


def module(python: str | Path, name: str, *arguments: str | Path, root: str | Path = ROOT) -> list[str]:
    """The command that runs a module as `python -m` does, but never a module in the working directory.

    `root` is the folder in which `training` lies, for another machine's or an image's.
    """
    return [str(python), "-u", str(Path(root, ENTRY, "torusrun")), name, *map(str, arguments)]


def program(python: str | Path, text: str, *arguments: str | Path) -> list[str]:
    """The command that runs the program `text` as `python -c` does, but never a module in the working directory."""
    return [str(python), "-u", str(Path(ROOT, ENTRY, "torusrun")), "-c", text, *map(str, arguments)]


def bare_program(python: str | Path, text: str, *arguments: str | Path) -> list[str]:
    """The command of `program` where torusrun's files are not: in an image, on a login node.

    The working directory must be trusted: with `-c`, Python 3.13 itself imports a `linecache` from it.
    """
    return [str(python), "-u", "-c", ELSEWHERE + text, *map(str, arguments)]


def script(python: str | Path, file: str, *arguments: str | Path) -> list[str]:
    """The command that runs a standalone file of torusrun. The file's folder comes first on the path."""
    return [str(python), str(Path(file).resolve()), *map(str, arguments)]


def run(
    argv: Sequence[str | Path],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    undecodable: str = "replace",
    text: str | None = None,
) -> Finished:
    """Run a program to its end and return its output, whatever its exit code.

    `environment` is for programs that must know our own job; the default is clean. `undecodable` says how bytes
    that are not UTF-8 are decoded, as in `bytes.decode`; names of files need "surrogateescape". The program reads
    `text` from its standard input.

    Raises SiteError if the program does not exist. Raises NoAnswer if it does not end within `timeout_s` seconds, and
    kills it with all that it has started.
    """
    command = [str(a) for a in argv]
    CALLS[Path(command[0]).name] += 1
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=safe(environment if environment is not None else clean_environment()),
            encoding="utf-8",
            errors=undecodable,
        ) as started:
            stdout, stderr = _output(started, text, timeout_s)
    except FileNotFoundError:
        if cwd is not None and not os.path.isdir(cwd):
            raise SiteError(f"{cwd}: this folder is missing") from None
        raise SiteError(f"{command[0]}: not found on this machine (is this the cluster's login node?)") from None
    except OSError as error:
        raise SiteError(f"{command[0]}: cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{command[0]} did not answer within {timeout_s:g} s{WAS_RUNNING}{' '.join(command)}") from None
    return Finished(tuple(command), started.returncode, stdout, stderr)


def _output(started: subprocess.Popen[str], text: str | None, timeout_s: float) -> tuple[str, str]:
    """The output of a program until its end. It is killed if it takes longer, or if the user interrupts us."""
    try:
        return started.communicate(text, timeout=timeout_s)
    except BaseException:
        _kill(started)
        raise


def login_environment() -> dict[str, str]:
    """Our environment plus the variables of a login shell: many sites set the path of the scheduler's commands in it.

    Our own entries of PYTHONPATH stay first. A shell that fails or takes too long adds nothing.
    """
    shell = os.environ.get("SHELL", "/bin/sh")
    try:
        shown = subprocess.run(
            [f"-{Path(shell).name}", "-c", f"echo {SHELL_MARK}; env -0"], executable=shell, timeout=SHELL_S,
            stdin=subprocess.DEVNULL, capture_output=True, env=safe(os.environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return dict(os.environ)
    pairs = shown.stdout.partition(f"{SHELL_MARK}\n".encode())[2].split(b"\0")
    variables = dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    rest = [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry not in own]
    return {**os.environ, **variables, "PYTHONPATH": os.pathsep.join([*own, *rest])}


def interact(argv: Sequence[str | Path]) -> int:
    """Run a program on the user's terminal, in the user's language; its exit code. It may ask the user: no timeout."""
    with _started(argv, env=safe(jobs_environment())) as program, _interrupting(program):
        code = program.wait()
    return code if code >= 0 else 128 - code


def join(argv: Sequence[str | Path], streams: Streams) -> int:
    """Run a program with these streams, in a clean environment; its exit code. It ends when its input does: no timeout.

    If the caller is interrupted, it ends the program.
    """
    environment = safe(clean_environment())
    with _started(argv, stdin=streams.input, stdout=streams.output, env=environment) as program:
        try:
            code = program.wait()
        except BaseException:
            program.terminate()
            raise
    return code if code >= 0 else 128 - code


@contextmanager
def _interrupting(program: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let ctrl-C reach only the program during the block. A terminal sends it to the program by itself."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not os.isatty(0):
            program.send_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def converse(argv: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    """Start a program that the caller writes to, reads from and ends. It gets a clean environment."""
    pipe = subprocess.PIPE
    return _started(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=safe(clean_environment()))


def detach(argv: Sequence[str | Path], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a program that outlives the caller, in its own session; it writes to `output`."""
    nothing = subprocess.DEVNULL
    return _started(argv, stdin=nothing, stdout=output, stderr=output, env=safe(os.environ), start_new_session=True)


def start(
    argv: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    output: IO[bytes] | None = None,
    errors: IO[bytes] | None = None,
    own_group: bool = False,
    cwd: Path | None = None,
    keep: Sequence[int] = (),
    parent_death: signal.Signals,
) -> subprocess.Popen[bytes]:
    """Start a program that the caller watches and ends.

    It writes to `output` (default: our own output), and its errors to `errors` (default: to `output`). It stays in the
    caller's session; with `own_group` it gets its own process group. It inherits the descriptors `keep`. If the caller
    dies first, the kernel sends it the signal `parent_death`, so that no program is left behind.
    """
    import ctypes  # noqa: F401  # before the fork: an import after it could wait for a thread that the fork left out

    return _started(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output if errors is None else errors,
        env=safe(environment),
        cwd=cwd,
        pass_fds=keep,
        preexec_fn=lambda: _begin(parent_death, own_group),
    )


def _started(argv: Sequence[str | Path], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program and count it; `options` are those of Popen."""
    command = [str(a) for a in argv]
    CALLS[Path(command[0]).name] += 1
    try:
        return subprocess.Popen(command, **options)
    except OSError as error:
        raise SiteError(f"{command[0]}: cannot be started: {_why(error, command[0])}") from None


def _why(error: OSError, program: str) -> str:
    """Why a program could not be started; if only its name was given, also how to correct it."""
    if error.errno != errno.ENOENT or error.filename != program or "/" in program:
        return str(error.strerror)
    return "it is in no folder of PATH; give its full path, or add its folder to PATH, for a job in `setup`"


def _begin(parent_death: signal.Signals, own_group: bool) -> None:
    if own_group:
        os.setpgid(0, 0)
    die_with_parent(parent_death)


def die_with_parent(number: signal.Signals) -> None:
    """Ask the kernel to send the signal `number` to this process when its parent dies."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def _kill(started: subprocess.Popen[str]) -> None:
    """Kill a program and all its descendants: a site may put a script before a scheduler's command."""
    pids = proc.descendants(started.pid)
    started.kill()
    for pid in pids[1:]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
