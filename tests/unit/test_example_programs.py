"""The Python examples are valid for every supported Python and do not import torusrun."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

THREADS = """
import os, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
    print("ended with", end.code, *(name for name in names if "gloo" in name))
"""

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


@pytest.mark.parametrize("program", ["programs/ddp.py", "checkpoints/saved_ddp.py"])
def test_no_thread_of_the_group_is_left_when_ddp_ends(program: str, tmp_path: Path) -> None:
    """A thread that needs Python while it ends aborts the process."""
    pytest.importorskip("sklearn")
    meeting = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    command = [sys.executable, "-c", THREADS, str(PROGRAMS.parent / program), "--steps", "2"]
    own = {**os.environ, **meeting}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=own)
    assert done.stdout.splitlines()[-1:] == ["ended with 0"], f"{done.returncode} {done.stdout}{done.stderr}"
