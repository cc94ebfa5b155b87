"""Checks of a run that has a command, or its own code: its keys, and whether its launcher connects an MPI program."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.images.sif import of_program
from torusrun.orchestrator.keys.paths import absolute, read_bytes
from torusrun.orchestrator.keys.run import NO_CODE, RunSpec
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.plan.missing import PYTHON, NamedFile, leaves, named_files
from torusrun.orchestrator.schedulers.launchers import Pmi, family
from torusrun.training.recipe.near import did_you_mean

NEITHER = (
    "there is neither 'train' nor 'command'; add 'train: {data: digits}' for torusrun's training, or "
    "'command: [python, train.py]' for a program of yours"
)
OF_A_COMMAND = ("stop", "checkpoints", "exit_codes", "metrics")
GROUPS = ("step", "total_steps", "epoch", "loss", "accuracy", "lr")  # of metrics.pattern
LONGEST_PATTERN = 1000  # characters
STARTS_RANKS = re.compile(  # where a shell or a launcher's user names the program, not an argument of another
    r"(?:^|[;&|(]\s*|\bexec |\s-l?c )(?:env )?(?:\w+=\S* )*(?:\S*/)?(torchrun|deepspeed|accelerate launch)(?![\w./-])"
    r"|\s-m (torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch)\b"
)
OWN_MEETING = re.compile(r"\s--(standalone|rdzv)|LOCAL_RANK|--num_processes[ =]1\b")
LDD_S = 5.0
LARGEST_BYTES = 1_000_000  # of a script to read


def misfits(run: RunSpec, written: Collection[str], folder: Path) -> Iterator[tuple[str, str]]:
    """(key, error) for the keys of a command. The run's file is in `folder`, and has the keys `written`."""
    if run.command or run.roles or run.train.needs_code:
        if run.code != NO_CODE and not (code := absolute(run.code or ".", folder)).is_dir():
            yield "code", f"'code': {code} is not a folder; name the folder of the code, or write 'code: none'"
    elif "code" in written:
        yield "code", "'code' belongs to a 'command', or to a 'train' with a function of yours (module:function)"
    if run.newest and not run.each:
        yield "newest", "'newest' needs 'each: checkpoint of RUN'"
    if run.each and (not run.command or run.roles or run.hang_timeout_s):
        yield "each", "'each' needs a 'command', without 'roles' and 'hang_timeout'"
    if not run.command:
        yield from _without_command(run, written)
        return
    if any(key == "train" or key.startswith("train.") for key in written):
        yield "train", "'train' and 'command' exclude each other: the ranks run one of them; leave one out"
    if run.program != "train":
        yield "program", f"'program: {run.program}' and 'command' exclude each other; leave one out"
    if not run.command[0]:
        yield "command", "'command' begins with an empty word; its first word is the program, as in [python, train.py]"
    folder_of_checkpoints = run.checkpoints.folder or "ckpt"
    if leaves(folder_of_checkpoints) or os.path.normpath(folder_of_checkpoints) == os.curdir:
        yield "checkpoints.folder", "'checkpoints.folder' must be a folder below the code, or an absolute path"
    yield from misfits_of_pattern(run.metrics.pattern or "")
    codes = run.exit_codes
    named = (*codes.done, *codes.later, *codes.never)
    if twice := {code for code in named if named.count(code) > 1}:
        yield "exit_codes", f"'exit_codes': {min(twice)} means two things; name each code once"


def ranks_of_its_own(run: RunSpec, ranks_per_node: int) -> str:
    """The program of a command that starts the ranks of a node itself, if each node would start it several times.

    All of them would open the same port, and count their workers alike, unless their options name another port. '' for
    any other command.
    """
    words = " ".join(run.command)
    starter = STARTS_RANKS.search(words)
    if ranks_per_node < 2 or not starter or OWN_MEETING.search(words):
        return ""
    return starter[1] or starter[2]


def misfits_of_pattern(pattern: str, key: str = "metrics.pattern") -> Iterator[tuple[str, str]]:
    """(key, error) for a pattern that is too long, or has unknown groups."""
    if len(pattern) > LONGEST_PATTERN:
        yield key, f"{key!r} must have at most {LONGEST_PATTERN} characters, and has {len(pattern)}"
    for name in re.compile(pattern).groupindex:
        if name not in GROUPS:
            hint = did_you_mean(name, GROUPS)
            yield key, f"{key!r} has an unknown group {name!r}{hint} (groups: {', '.join(GROUPS)})"


def _without_command(run: RunSpec, written: Collection[str]) -> Iterator[tuple[str, str]]:
    if "train" not in written and run.program == "train":
        yield "", NEITHER
    for key in OF_A_COMMAND:
        if key in written:
            yield key, f"{key!r} belongs to a 'command', and this run has none"


def unconnected_mpi(run: RunSpec, site: Site, folder: Path, *, later: bool = False) -> Iterator[tuple[str, str]]:
    """(key, error) for MPI programs that the launcher does not connect: each would be rank 0 of 1, and COMPLETED.

    The arguments are those of `missing.named_files`.
    """
    ranks = run.nodes * (run.ranks_per_node or site.node.ranks)
    if not run.command or family(site.launcher).pmi is not Pmi.NOBODY or ranks == 1:
        return
    for named in named_files(run, site, folder, later=later):
        if why := _calls_mpi(named):
            single = f"the launcher {site.launcher!r} would start {ranks} programs of one rank each"
            yield named.key, f"'command': {named.word} {why}: {single}; name a site with 'launcher: mpirun'"


def _calls_mpi(named: NamedFile) -> str:
    """The proof that a program calls MPI, in words; '' without a proof."""
    if named.path is None or (named.interpreter and named.interpreter is not PYTHON):
        return ""
    return _imported(named.path) if named.interpreter else _linked(named.path)


def _linked(path: Path) -> str:
    """The MPI library that a dynamic executable loads, by `ldd`, in words; '' if it loads none."""
    if of_program(path) is None:
        return ""
    from torusrun.orchestrator.images.checks.answers import family_of, parse_ldd

    try:
        done = process.run(["ldd", path], timeout_s=LDD_S)
    except SiteError:
        return ""
    loads = parse_ldd(str(path), done.stdout, done.exit_code)
    library = next(filter(family_of, (loads.mpi or "", *loads.missing)), "")
    return f"is linked with {library}" if library else ""


def _imported(path: Path) -> str:
    """The line on which a script always imports MPI. An import inside a function, `if` or `try` may never run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(read_bytes(path, LARGEST_BYTES)).body
    except (OSError, UserError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    lines = (statement.lineno for statement in body if _imports_mpi(statement))
    return next((f"imports mpi4py on line {line}" for line in lines), "")


def _imports_mpi(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        absolute = statement.level == 0 and statement.module == "mpi4py"
        return absolute and any(alias.name == "MPI" for alias in statement.names)
    return isinstance(statement, ast.Import) and any(alias.name == "mpi4py.MPI" for alias in statement.names)
