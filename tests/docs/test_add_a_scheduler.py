"""docs/guides/add-a-scheduler.md, followed to the letter: the scheduler that it adds trains the example."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides" / "add-a-scheduler.md").read_text()


def block(kind: str, number: int = 0) -> str:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[number]


@pytest.mark.lab
@pytest.mark.needs("tsp")
def test_the_page_adds_a_scheduler_that_trains_the_example(tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "spooler.py").write_text(block("python"))
    (tmp_path / "site.yaml").write_text(block("yaml") + f"runs: {tmp_path}/runs\n")
    shutil.copy(ROOT / "examples/digits.yaml", tmp_path)
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "PYTHONPATH": f"{ROOT}/src:{library}",
        "TS_SOCKET": str(tmp_path / "tsp"),
    }

    def torusrun(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "torusrun", *words]
        return subprocess.run(argv, cwd=tmp_path, env=env, text=True, capture_output=True, timeout=240)

    try:
        args = ("digits.yaml", "--site", "./site.yaml", "--set", "grid=2x1")
        waiting = torusrun("submit", *args, "--set", "train.epochs=15")
        assert waiting.returncode == 0, waiting.stderr
        second = torusrun("submit", *args)
        states = {run["run"]: run["state"] for run in json.loads(torusrun("status", "--json").stdout)["runs"]}
        assert states[second.stdout.strip()] == "PENDING", "the queue runs one job at a time"
        assert torusrun("cancel", second.stdout.strip()).returncode == 0
        done = torusrun("watch", waiting.stdout.strip())
        assert done.returncode == 0, done.stdout + done.stderr
        view = json.loads(torusrun("status", waiting.stdout.strip(), "--json").stdout)["runs"][0]
        assert view["state"] == "COMPLETED" and view["accuracy"] >= 0.98, view
    finally:
        subprocess.run(["tsp", "-K"], env=env, timeout=300)
