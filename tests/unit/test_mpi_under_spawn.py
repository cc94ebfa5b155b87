"""MPI programs under the launcher `spawn`: each rank would be a world of one, so they are refused."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.verbs import Capsys, Patch
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.plan import fits_command
from torusrun.orchestrator.run.plan.plan import plan

RUN = "name: x\nsite: site.yaml\ncommand: {command}\n"
SITE = "scheduler: local\nlauncher: {launcher}\nnode: {{ranks: {ranks}}}\n"
IMPORTS = "import os\nfrom mpi4py import MPI\n"


def written(folder: Path, command: str, launcher: str = "spawn", ranks: int = 4) -> Path:
    (folder / "site.yaml").write_text(SITE.format(launcher=launcher, ranks=ranks))
    (folder / "run.yaml").write_text(RUN.format(command=command))
    return folder / "run.yaml"


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A program that loads a library of the name that Open MPI's has."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler here")
    (tmp_path / "mpi.c").write_text("int MPI_Init(void) { return 0; }\n")
    (tmp_path / "ring.c").write_text("int MPI_Init(void);\nint main(void) { return MPI_Init(); }\n")
    for words in (
        ["-shared", "-fPIC", "-Wl,-soname,libmpi.so.40", "-o", "libmpi.so.40", "mpi.c"],
        ["-o", "ring", "ring.c", "./libmpi.so.40", "-Wl,-rpath,$ORIGIN"],
    ):
        subprocess.run(["cc", *words], cwd=tmp_path, check=True, timeout=240)
    return tmp_path


def test_a_program_that_is_linked_with_mpi_is_refused(linked: Path, capsys: Capsys) -> None:
    spec = written(linked, "[./ring]")
    for verb in ("plan", "submit"):
        assert main([verb, str(spec)]) == 2
        assert capsys.readouterr().err == (
            f"torusrun: {spec}:3:11: 'command': ./ring is linked with libmpi.so.40: the launcher 'spawn' would start 4 "
            "programs of one rank each; name a site with 'launcher: mpirun'\n"
        )
    (linked / "libmpi.so.40").unlink()
    assert main(["plan", str(spec)]) == 2, "a library that is not found here has its name all the same"
    assert plan(written(linked, "[./ring]", "mpirun"))
    assert plan(written(linked, "[./ring]", ranks=1))


def test_no_answer_of_ldd_refuses_nothing(linked: Path, monkeypatch: Patch) -> None:
    (linked / "bin").mkdir()
    (linked / "bin/ldd").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (linked / "bin/ldd").chmod(0o755)
    monkeypatch.setattr(fits_command, "LDD_S", 0.05)
    for path in (str(linked / "bin"), str(linked)):  # it does not end, or is not there
        monkeypatch.setenv("PATH", path)
        assert plan(written(linked, "[./ring]"))


@pytest.mark.parametrize(
    ("script", "line"),
    [(IMPORTS, 2), ("'''Text.'''\nimport mpi4py.MPI as MPI\n", 2), ("from mpi4py import MPI, rc\n", 1)],
)
def test_a_script_that_imports_mpi_is_refused(script: str, line: int, tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "x.py").write_text(script)
    spec = written(tmp_path, "[python3, -u, x.py]")
    assert main(["plan", str(spec)]) == 2
    assert f"{spec}:3:24: 'command': x.py imports mpi4py on line {line}: the launcher" in capsys.readouterr().err


@pytest.mark.parametrize(
    "script",
    [
        "try:\n    from mpi4py import MPI\nexcept ImportError:\n    MPI = None\n",
        "def main():\n    from mpi4py import MPI\n",
        "import mpi4py\n",
        "from mpi4py_fft import MPI\n",
        "from .mpi4py import MPI\n",
        "'''\nfrom mpi4py import MPI\n'''\n",
        IMPORTS + "print 'Python 2'\n",
        IMPORTS + "#" * 2_000_000,
        IMPORTS + "x = " + "(" * 5000,
        IMPORTS + "\0",
    ],
)
def test_a_script_that_may_not_use_mpi_is_accepted(script: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(script)
    assert plan(written(tmp_path, "[python3, x.py]"))


def test_a_program_without_mpi_is_accepted(tmp_path: Path) -> None:
    shutil.copy("/bin/true", tmp_path / "true")
    (tmp_path / "x.sh").write_text("#!/bin/sh\n./ring\n")
    (tmp_path / "x.sh").chmod(0o755)
    for command in ("[./true]", "['true']", "[./x.sh]", "[sh, x.sh]", "[sh, -c, ./ring]"):
        assert plan(written(tmp_path, command))
