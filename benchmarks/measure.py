"""The size of this project in one table: `make measure`, or `python -m benchmarks.measure`."""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median, quantiles

from tests.unit.test_architecture import wrong_way_imports
from torusrun.orchestrator.cli.verb_list import VERBS, parser_of

ROOT = Path(__file__).resolve().parents[1]
ON_EVERY_VERB = {"--quiet", "-q"}  # counted once
EXECUTED = """
import sys
from torusrun.orchestrator.cli.main import main
main(["submit", "examples/digits.yaml", "--dry-run"])
print(len([name for name in sys.modules if name.startswith("torusrun.")]), file=sys.stderr)
"""


def python_files(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if "__pycache__" not in path.parts]


def length(paths: Iterable[Path]) -> int:
    """The lines of these files together."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def functions(paths: Iterable[Path]) -> Iterator[int]:
    """The lines of each function."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield (node.end_lineno or node.lineno) - node.lineno + 1


def options() -> int:
    """The options of all verbs, hidden ones too; those that every verb has are counted once."""
    found = 1
    for verb in VERBS:
        parsers = [parser_of(verb)]
        while parsers:
            for action in parsers.pop()._actions:
                if isinstance(action, argparse._SubParsersAction):
                    parsers += action.choices.values()
                elif action.option_strings and not isinstance(action, argparse._HelpAction):
                    found += not ON_EVERY_VERB & {*action.option_strings}
    return found


def keys() -> int:
    """The rows of the page that has every key."""
    return len(re.findall(r"^\| `", (ROOT / "docs/reference/spec.md").read_text(encoding="utf-8"), re.MULTILINE))


def executed() -> str:
    """The modules of torusrun that `submit --dry-run` of a plain run executes."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, "-c", EXECUTED], capture_output=True, text=True, timeout=120, cwd=ROOT, check=True,
            env={"HOME": home, "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
    return done.stderr.split()[-1]


def sizes(values: Iterable[int]) -> str:
    """'median / 90th percentile / largest'."""
    found = sorted(values)
    return f"{median(found):.0f} / {quantiles(found, n=10)[8]:.0f} / {found[-1]}"


def table() -> Iterator[tuple[str, object]]:
    """Each measure with its value."""
    code = {folder: python_files(folder) for folder in ("orchestrator", "training", "tests")}
    yield "lines of orchestrator / training / tests", " / ".join(f"{length(paths):,}" for paths in code.values())
    yield "files of orchestrator", len(code["orchestrator"])
    yield "wrong-way imports between parts", len(wrong_way_imports())
    yield "modules that submit --dry-run of a plain run executes", executed()
    yield "verbs; options; keys", f"{len(VERBS)}; {options()}; {keys()}"
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    yield "words of docs", f"{sum(len(page.read_text(encoding='utf-8').split()) for page in pages):,}"
    yield "lines of a function: median / 90 % / largest", sizes(functions(code["orchestrator"]))
    yield "lines of a file: median / 90 % / largest", sizes(length([path]) for path in code["orchestrator"])


if __name__ == "__main__":
    for measure, value in table():
        print(f"{measure:56}{value}")
