"""What the login node may import does not load torch, and nothing that another process sends is unpickled."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

from training_runs import ROOT

WITHOUT_TORCH = [
    "torusrun.training",
    "torusrun.training.config",
    "torusrun.training.reporting.exits",
    "torusrun.training.reporting.metrics",
    "torusrun.training.checkpoint.manifest",
    "torusrun.training.data.order",
    "torusrun.training.data.image_files",
    "torusrun.training.data.pack",
    "torusrun.training.data.named",
    "torusrun.training.data.view",
    "torusrun.training.models.residual",
    "torusrun.training.recipe.names",
    "torusrun.training.recipe.protocols",
    "torusrun.training.recipe.train",
    "torusrun.training.schedule",
    "torusrun.training.__main__",
]


def test_no_torch_on_the_login_node() -> None:
    loaded = "[name for name in ('torch', 'numpy') if name in sys.modules]"
    script = f"import sys, {', '.join(WITHOUT_TORCH)}; print({loaded})"
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.stdout.strip() == "[]", f"a module of {WITHOUT_TORCH} imports torch: {ended.stdout}{ended.stderr}"


UNPICKLING = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def unpickles(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines that unpickle, or may, and what is wrong with each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and UNPICKLING & {alias.name.split(".")[0] for alias in node.names}:
            yield node.lineno, "imports pickle"
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNPICKLING:
            yield node.lineno, "imports pickle"
        if isinstance(node, ast.Attribute) and "object" in node.attr:
            yield node.lineno, f"{node.attr} sends pickles; send a tensor"
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            safe = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}.get("weights_only")
            if safe != "True":
                yield node.lineno, "torch.load without weights_only=True runs what it reads"


def test_no_object_collective_and_no_pickle() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {why}"
        for path in sorted((ROOT / "training").rglob("*.py"))
        for line, why in unpickles(ast.parse(path.read_text()))
    ]
    # For its unpickler, which loads only the types that PyTorch writes into `.metadata` (test_training_shards.py).
    [allowed] = [line for line in wrong if line.startswith("training/checkpoint/shards.py:")]
    assert allowed.endswith("imports pickle")
    assert ast.unparse(uses_of_pickle()[0]) == "pickle.Unpickler" and len(uses_of_pickle()) == 2, "and an error of it"
    assert wrong == [allowed], "\n".join(wrong)


def uses_of_pickle() -> list[ast.Attribute]:
    """The attributes of pickle in checkpoint/shards.py."""
    nodes = ast.walk(ast.parse((ROOT / "training/checkpoint/shards.py").read_text()))
    found = [node for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle"]
    return sorted(found, key=ast.unparse)


def test_every_way_to_unpickle_is_found() -> None:
    lines = ["import pickle", "from shelve import open", "d.gather_object", "torch.load(a)"]
    program = "\n".join([*lines, "torch.load(a, weights_only=True)"])
    assert [line for line, _ in unpickles(ast.parse(program))] == [1, 2, 3, 4]
