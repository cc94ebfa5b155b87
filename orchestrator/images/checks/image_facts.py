"""The facts of an image, from its file and from inside. An unknown fact is None, never a guess."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.environment import clean_environment
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images import sif
from torusrun.orchestrator.images.checks import probe
from torusrun.orchestrator.images.checks.answers import (
    Library,
    MpiLibrary,
    family_of,
    parse_compat,
    parse_glibc,
    parse_ldd,
    parse_mpi,
    parse_probe,
    parse_questions,
    same_abi,
)
from torusrun.orchestrator.images.checks.facts import ImageFacts
from torusrun.orchestrator.images.command import ContainerExec, inside
from torusrun.orchestrator.images.runtime import own_environment

ASKING_S = 60.0
IMPORTING_S = 180.0  # for torch on a shared file system
NOT_FOUND = 127
DAMAGED = re.compile(r"(?i)trying to read the squashfs|image format not recogni|corrupt|bad superblock|checksum")
# Messages of a runtime that this machine, not the image, prevents from starting.
OF_THIS_MACHINE = re.compile(
    r"(?i)user namespace|not permitted|permission denied|setuid|/dev/fuse|squashfuse|loop device|newuidmap|fusermount"
    r"|capability set"
)
NO_SHELL = re.compile(r"(?i)/bin/sh\S*[^\n]*(no such file|not found|not exist)")
PROVIDER = re.compile(r"\b(?:lib)?(\w+?)(?:\.driver|-rdmav\d+\.so)")
REPORTED = ("python", "torch", "torch_error", "cuda", "nccl", "cudnn", "training", "verbs_error")


@dataclass(frozen=True)
class Inside:
    """How to query an image: the container, the variables, and the subjects of the questions.

    `variables` are the run's variables that change which files a program finds. `program` is the first word of a
    command, '' for none. `folders` are the places in the image at which the host's MPI may be bound.
    """

    container: ContainerExec
    variables: Mapping[str, str] = field(default_factory=dict)
    program: str = ""
    folders: Sequence[str] = ()
    environment: Mapping[str, str] | None = None


def image(path: Path, query: Inside | None = None) -> ImageFacts:
    """Query an image. Programs run in it only for `query`."""
    processor, evidence = sif.machine(path)
    facts = ImageFacts(str(path), machine=processor, starts=None, asked={"machine": evidence})
    try:
        with open(private.open_regular(Path(os.path.realpath(path))), "rb") as stream:
            stream.read(1)
    except OSError as error:
        return _with(replace(facts, readable=False), file=f"{path}: {error.strerror}")
    return _examined(facts, query) if query else facts


def _examined(facts: ImageFacts, query: Inside) -> ImageFacts:
    try:
        done = _run(query, script(query.program, query.folders), ASKING_S)
    except (SiteError, ValueError) as error:
        return not_started(facts, str(error))
    if not (answers := parse_questions(done.stdout)):
        return not_started(facts, complaint(done.stderr))
    facts = by_its_shell(facts, answers, query)
    if not facts.has_python:
        return facts
    try:
        program = process.bare_program("python3", Path(probe.__file__).read_text(encoding="utf-8"))
        done = _run(query, program, IMPORTING_S)
    except SiteError as error:
        return _with(facts, torch=str(error), training=str(error))
    return by_its_python(facts, done.stdout, done.stderr)


def complaint(stderr: str) -> str:
    """The line of a runtime's or program's output that states the error, without colours."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", stderr).splitlines() if line.strip()]
    bad = [re.sub(r"^(FATAL|ERROR) *: *", "", line) for line in lines if line.startswith(("FATAL", "ERROR"))]
    return (bad or lines or ["it printed nothing"])[-1]


def not_started(facts: ImageFacts, message: str) -> ImageFacts:
    """The facts if no query ran: the image has no shell, this machine prevents it, or no program starts in it."""
    facts = _with(facts, start=f"/bin/sh in the image: {message}")
    if "exec format error" in message.lower():
        return replace(facts, starts=False, foreign=True)
    if NO_SHELL.search(message):
        return replace(facts, starts=None, shell=False)
    of_this_machine = OF_THIS_MACHINE.search(message) or "did not answer" in message
    return replace(facts, starts=None if of_this_machine and not DAMAGED.search(message) else False)


def by_its_shell(facts: ImageFacts, answers: Mapping[str, tuple[str, int]], query: Inside) -> ImageFacts:
    """Add the facts from the image's shell, given as answers by name."""
    texts = {name: answer for name, (answer, code) in answers.items() if code == 0}
    bound = [_library(answers, f"bound {folder}") for folder in query.folders]
    program, code = answers.get("program", ("", 0))
    started = _library(answers, "program")
    mpi, how = _mpi(texts, started)
    facts = replace(
        facts,
        starts=True,
        glibc=parse_glibc(texts.get("glibc", "")),
        has_python="python" in texts,
        mpi=mpi,
        compat=parse_compat(texts.get("compat", "")),
        program=started,
        no_program=bool(query.program) and code == NOT_FOUND and not program,
        bound_mpi=tuple(library for library in bound if library),
        providers=tuple(sorted(set(PROVIDER.findall(texts.get("providers", ""))))),
    )
    return _with(
        facts,
        start="/bin/sh runs in it",
        glibc=f"`ldd --version` in the image: {_first(answers, 'glibc')}",
        python=f"`command -v python3` in the image: {_first(answers, 'python')}",
        mpi=how,
        program=f"`ldd {query.program}` in the image: {_first(answers, 'program')}",
        bound="; ".join(f"`ldd {library.path}` in the image: {_lacks(library)}" for library in facts.bound_mpi)
        or f"libmpi.so was looked for in the image below {', '.join(query.folders) or 'no folder'}",
    )


def _mpi(texts: Mapping[str, str], program: Library | None) -> tuple[MpiLibrary | None, str]:
    """(the MPI that the program is linked with, else the image's own; the evidence)."""
    mpi = parse_mpi(texts.get("mpirun", ""))
    how = f"`mpirun --version` in the image: {mpi or 'it is not there, or is of no known MPI'}"
    if program and program.mpi and (family := family_of(program.mpi)):
        linked = f"`ldd {program.path}` in the image: {program.mpi}"
        if program.mpi in program.missing:
            return None, f"{linked} => not found"
        own = mpi and same_abi(mpi.family, family)
        return (mpi, f"{how}; {linked}") if own else (MpiLibrary(family, ""), linked)
    return mpi, how


def _library(answers: Mapping[str, tuple[str, int]], name: str) -> Library | None:
    """The library from one answer of the script: a path, then the output of ldd. None if it names no file."""
    answer, code = answers.get(name, ("", NOT_FOUND))
    path, _, listing = answer.partition("\n")
    return parse_ldd(path, listing, code) if path.startswith("/") else None


def by_its_python(facts: ImageFacts, stdout: str, stderr: str = "") -> ImageFacts:
    """Add the facts from the image's Python, as the probe printed them."""
    if not (report := parse_probe(stdout)):
        why = f"the image's python3 failed: {complaint(stderr)}"
        return _with(facts, torch=why, training=why)
    values: dict[str, Any] = {name: report[name] for name in REPORTED if name in report}
    if "verbs_error" in report:
        values["verbs"] = not report["verbs_error"]
    python = f"the image's python3 {report.get('python')}"
    torch = report.get("torch_error") or f"torch {report.get('torch')}, CUDA {report.get('cuda')}"
    facts = _with(
        replace(facts, architectures=tuple(map(str, report.get("architectures") or ())), **values),
        python=f"{facts.evidence('python')}, version {report.get('python')}",
        torch=f"{python}: {torch}",
        training=f"{python}: the package 'training' is {'found' if report.get('training') else 'not found'}",
    )
    if "verbs_error" not in report:
        return facts
    return _with(facts, verbs=f"{python}: ctypes.CDLL('libibverbs.so.1'): {report['verbs_error'] or 'it loads'}")


def _run(query: Inside, command: Sequence[str], timeout_s: float) -> process.Finished:
    # Without --nv: the queries need no GPU, and a login node has none.
    plain = query.container.only_asked(query.container.directory or "/")
    started = inside(plain, command, query.variables, {})
    shell = own_environment(query.environment or clean_environment())
    return process.run(started.argv, timeout_s=timeout_s, environment={**shell, **started.environment})


def _with(facts: ImageFacts, **asked: str) -> ImageFacts:
    return replace(facts, asked={**facts.asked, **asked})


def _first(answers: Mapping[str, tuple[str, int]], name: str) -> str:
    answer, code = answers.get(name, ("", NOT_FOUND))
    return (answer.splitlines() or ["it is not there" if code == NOT_FOUND else "it printed nothing"])[0]


def _lacks(library: Library) -> str:
    lacking = [*(f"{name} => not found" for name in library.missing), *(f"GLIBC_{v} not found" for v in library.glibc)]
    return library.error or ", ".join(lacking) or "all its libraries are found"


# $1 is the first word of a command ('' for none), $2... are folders that may have the host's MPI.
SCRIPT = r"""
PATH=$PATH:/usr/sbin:/sbin
ask() { printf '\nTORUSRUN-ASKED %s\n' "$1"; shift; "$@" 2>&1; printf '\nTORUSRUN-ANSWERED %s\n' "$?"; }
file_of() (  # not `command -v`, to which a shell may know a program that is no file
  case $1 in /*) folders=/ ;; */*) folders=$PWD ;; *) folders=$PATH ;; esac
  set -f
  IFS=:
  for folder in $folders; do
    file=${folder%/}/${1#/}
    if [ -f "$file" ] && [ -x "$file" ]; then printf '%s\n' "$file"; return; fi
  done
  return 127
)
program() { file=$(file_of "$1") || return 127; printf '%s\n' "$file"; ldd "$file"; }
bound() {
  for name in libmpi.so.[0-9]* libmpi.so libmpich.so.[0-9]*; do
    for library in "$1"/$name "$1"/lib/$name "$1"/lib64/$name "$1"/lib/release/$name; do
      if [ -e "$library" ]; then printf '%s\n' "$library"; ldd "$library"; return; fi
    done
  done
  return 127
}
providers() { ls /etc/libibverbs.d /usr/etc/libibverbs.d /usr/lib/*/libibverbs /usr/lib64/libibverbs 2> /dev/null; }
compat() { ls /usr/local/cuda*/compat/libcuda.so.* /usr/local/cuda*/compat/lib*/libcuda.so.* 2> /dev/null; }
ask glibc ldd --version
ask mpirun mpirun --version
ask providers eval 'providers; true'
ask compat eval 'compat; true'
ask python command -v python3
if [ -n "$1" ]; then ask program program "$1"; fi
shift
for folder; do ask "bound $folder" bound "$folder"; done
"""


def script(program: str, folders: Sequence[str]) -> list[str]:
    """The command that queries an image about the first word of a command and the MPI in these folders of the image."""
    return ["/bin/sh", "-c", SCRIPT, "torusrun", program, *folders]
