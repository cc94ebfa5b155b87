"""The wheel has all that an installation needs: its verbs run from it alone."""

import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from torusrun.orchestrator.cli.verb_list import VERBS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    builder = importlib.import_module("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    (made,) = builder.build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(made)


def test_it_has_the_man_page_of_every_verb_and_completion(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        (data,) = {name.split("/")[0] for name in packed.namelist() if ".data/" in name}
        page = packed.read(f"{data}/data/share/man/man1/torusrun.1").decode()
        bash = packed.read(f"{data}/data/share/bash-completion/completions/torusrun").decode()
        names = set(packed.namelist())
    assert all(f'.SS "torusrun {verb}"' in page for verb in VERBS)
    assert not [line for line in page.splitlines() if line.startswith(("'", "..."))], "roff would take it for a request"
    assert bash.endswith("-F _torusrun torusrun\n")
    assert f"{data}/data/share/fish/vendor_completions.d/torusrun.fish" in names
    for folder in ("templates", "containers", "examples"):
        ours = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.*") if path.is_file()}
        missing = {path for path in ours if "__pycache__" not in path and f"torusrun/{path}" not in names}
        assert not missing, f"the wheel lacks {missing}"


def test_its_verbs_run_from_what_is_installed(wheel: Path, home: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from torusrun.orchestrator.cli.main import main; main()"
    for words in (["examples", "digits"], ["examples", "--skill"], ["completion", "bash"], ["sites"], ["status"]):
        said = subprocess.run(
            [sys.executable, "-I", "-c", program, tmp_path / "site", *words],
            capture_output=True, text=True, timeout=300, cwd=home, env={**os.environ, "HOME": str(home)},
        )  # fmt: skip
        assert said.returncode == 0 and said.stdout, said.stderr
