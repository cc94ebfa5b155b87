"""The Python examples are valid for every supported Python and do not import torusrun."""

from __future__ import annotations

import ast
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
