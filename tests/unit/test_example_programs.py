"""The Python examples are valid for every supported Python and do not import torusrun."""

from __future__ import annotations

import ast
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "programs"
OURS = {"orchestrator", "training", "torusrun"}


def test_the_python_programs_are_valid_and_import_nothing_of_ours() -> None:
    imported: dict[str, set[str]] = {}
    for path in PROGRAMS.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(), feature_version=(3, 10))))
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        imported[path.name] = {name.partition(".")[0] for name in names}
    assert imported and all(imported.values())
    assert not {program: names & OURS for program, names in imported.items() if names & OURS}
