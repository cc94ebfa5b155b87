"""The example programs can be read by every Python and C compiler that they are for, and do not import torusrun."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "programs"
OURS = {"orchestrator", "training", "torusrun"}


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.name)
def test_a_python_program_is_valid_and_imports_nothing_of_ours(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported and not {name.partition(".")[0] for name in imported} & OURS


@pytest.mark.skipif(not shutil.which("mpicc"), reason="there is no mpicc here")
def test_the_c_program_compiles_without_warnings(tmp_path: Path) -> None:
    words = ["mpicc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(PROGRAMS / "mpi_ring.c")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
