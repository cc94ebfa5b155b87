"""Finds MPI programs under a launcher that does not connect them: each would be rank 0 of 1, and COMPLETED."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.images.sif import of_program
from torusrun.orchestrator.keys.paths import read_bytes
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.plan.named_files import PYTHON, NamedFile, named_files
from torusrun.orchestrator.schedulers.launchers import Pmi, family

LDD_S = 5.0
LARGEST_BYTES = 1_000_000  # of a script to read


def misfits(run: RunSpec, site: Site, folder: Path, *, later: bool = False) -> Iterator[tuple[str, str]]:
    """(key, error) for every misfit. The arguments are those of `named_files.named_files`."""
    ranks = run.nodes * (run.ranks_per_node or site.node.ranks)
    if not run.command or family(site.launcher).pmi is not Pmi.NOBODY or ranks == 1:
        return
    for named in named_files(run, site, folder, later=later):
        if why := _calls_mpi(named):
            single = f"the launcher {site.launcher!r} would start {ranks} programs of one rank each"
            yield named.key, f"'command': {named.word} {why}: {single}; name a site with 'launcher: mpirun'"


def _calls_mpi(named: NamedFile) -> str:
    """The proof that a program calls MPI, in words; '' if there is none."""
    if named.path is None or (named.interpreter and named.interpreter is not PYTHON):
        return ""
    return _imported(named.path) if named.interpreter else _linked(named.path)


def _linked(path: Path) -> str:
    """The MPI library that a dynamic executable loads, by `ldd`, in words; '' if there is none."""
    if of_program(path) is None:
        return ""
    from torusrun.orchestrator.images.checks.answers import family_of, parse_ldd

    try:
        done = process.run(["ldd", path], timeout_s=LDD_S)
    except SiteError:
        return ""
    found = parse_ldd(str(path), done.stdout, done.exit_code)
    library = next(filter(family_of, (found.mpi or "", *found.missing)), "")
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
