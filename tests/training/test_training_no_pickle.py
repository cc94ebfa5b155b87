"""Nothing that another process sends or leaves behind is unpickled."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from training_runs import ROOT

UNPICKLING = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FILES = sorted((ROOT / "training").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_object_collective_and_no_pickle(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            assert not UNPICKLING & {alias.name.split(".")[0] for alias in node.names}, f"{where} imports pickle"
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in UNPICKLING, f"{where} imports pickle"
        if isinstance(node, ast.Attribute):
            assert "object" not in node.attr, f"{where}: {node.attr} sends pickles; send a tensor"
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            safe = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}.get("weights_only")
            assert safe == "True", f"{where}: torch.load without weights_only=True runs what it reads"
