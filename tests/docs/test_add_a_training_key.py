"""docs/guides/add-a-training-key.md, followed to the letter: one line is all it takes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides" / "add-a-training-key.md").read_text()
RUN = "name: clipped\nsite: local\ntrain:\n  gradient_clip: {}\n"
ARRIVES = """
import json, sys
from pathlib import Path
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.program.training import configuration
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.training.config import load

planned, written = plan(Path("run.yaml")), Path("config.json")
run = RunFolder(Path.cwd())
written.write_text(json.dumps(configuration(planned, run, run.attempt(1))))
print(load(written, planned.ranks).train.gradient_clip)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The product with the line of the page in it."""
    for name in ("orchestrator", "training", "templates", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (line,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert line.count("\n") == 1, "adding a key must take one line"
    with (tmp_path / "training/recipe/train.py").open("a") as file:
        file.write(line)
    return tmp_path


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOME": str(folder), "PYTHONPATH": f"{folder}/training/entry:{folder}/docs"}
    return subprocess.run([sys.executable, *words], cwd=folder, env=env, text=True, capture_output=True, timeout=300)


def test_the_line_of_the_page_adds_the_key(copy: Path) -> None:
    (copy / "run.yaml").write_text(RUN.format(-1))
    refused = python(copy, "-m", "torusrun", "plan", "run.yaml")
    assert refused.stderr == "torusrun: run.yaml:4:18: 'train.gradient_clip' must be at least 0, not -1\n"
    (copy / "run.yaml").write_text(RUN.format(2.5))
    arrived = python(copy, "-c", ARRIVES)
    assert arrived.stdout == "2.5\n", f"the ranks must be told the key: {arrived.stderr}"
    schema = json.loads(python(copy, "-m", "torusrun", "schema", "run").stdout)
    described = schema["properties"]["train"]["properties"]["gradient_clip"]
    assert described["type"] == "number" and described["minimum"] == 0
    table = python(copy, "-c", "import make_spec; print(make_spec.text())").stdout
    assert "| `train.gradient_clip` | largest norm of a gradient, 0 for any | `0.0` |" in table
