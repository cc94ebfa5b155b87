"""torusrun.pyz: it needs only Python, is unpacked once, and starts a verb from few files."""

import ast
import marshal
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torusrun.orchestrator.remote.archive import one_file

FEWEST = 12  # opens of a bare `sh` and Python in some containers; then nothing was counted


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, beside a `python3` that has none of the packages."""
    folder = tmp_path_factory.mktemp("one")
    made = folder / "torusrun"
    made.write_bytes(one_file())
    made.chmod(0o755)
    (folder / "python3").symlink_to(f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}")
    return made


def started(pyz: Path, home: Path, *words: str, first: tuple[str, ...] = (), **variables: str) -> tuple[int, str]:
    """The exit code of the file, and its output with its messages."""
    environment = {"HOME": str(home), "PATH": f"{pyz.parent}:{os.defpath}", **variables}
    said = subprocess.run(
        [*first, pyz, *words], env=environment, cwd=home, text=True, timeout=120,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return said.returncode, said.stdout


def unpacked(home: Path) -> Path:
    (folder,) = (home / ".local/share/torusrun").iterdir()
    return folder


def test_it_is_unpacked_once_and_has_all_that_the_verbs_read(pyz: Path, home: Path) -> None:
    assert started(pyz, home, "status") == (0, "no runs yet; `torusrun submit RUN.yaml` makes one\n")
    folder = unpacked(home)
    assert started(pyz, home, "examples")[1].count("\n") > 10
    code, said = started(pyz, home, "examples", "checkpoints/saved_ddp", "--save", "new.yaml")
    assert code == 0, said
    code, said = started(pyz, home, "run", "--code", "none", "--dry-run", "--", "python3", "a.py")
    assert code == 0 and str(folder) in said, said
    assert started(pyz, home, "status", first=("python3",))[0] == 0
    assert unpacked(home) == folder


def test_a_verb_that_has_run_once_needs_none_of_its_files_again(pyz: Path, home: Path) -> None:
    before = started(pyz, home, "sites")
    package = unpacked(home) / "torusrun"
    shutil.rmtree(package / "orchestrator" / "cli")
    shutil.rmtree(package / "orchestrator" / "base")
    assert started(pyz, home, "sites") == before
    assert started(pyz, home, "status")[0] != 0, "nothing was kept of it, so the files were read before"


def test_status_opens_at_most_forty_files(pyz: Path, home: Path) -> None:
    if not (strace := shutil.which("strace")):
        pytest.skip("strace is not installed here")
    started(pyz, home, "status")
    log = home / "opened"
    assert started(pyz, home, "status", first=(strace, "-f", "-e", "trace=open,openat", "-o", str(log)))[0] == 0
    without = ("ENOENT", "lib-dynload")  # its modules are in the binary of some builds of Python
    opened = [line for line in log.read_text().splitlines() if "open" in line and not any(w in line for w in without)]
    assert FEWEST < len(opened) <= 40, "\n".join(opened)


def test_a_damaged_file_of_kept_modules_is_replaced(pyz: Path, home: Path) -> None:
    started(pyz, home, "sites")
    (kept,) = unpacked(home).glob(".kept-*")
    whole = kept.read_bytes()
    flipped = whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:]
    for content in (whole[: len(whole) // 2], b"", marshal.dumps(7), flipped):
        kept.write_bytes(content)
        assert started(pyz, home, "sites")[0] == 0
        assert len(kept.read_bytes()) > len(whole) / 2


def test_nothing_is_imported_from_the_working_directory(pyz: Path, home: Path) -> None:
    for name in ("struct", "json", "torusrun", "linecache", "yaml"):
        (home / f"{name}.py").write_text("raise SystemExit('a stranger')\n")
    for variables in ({}, {"PYTHONPATH": ""}, {"PYTHONPATH": ":."}):
        assert started(pyz, home, "sites", **variables)[0] == 0


def test_a_folder_that_strangers_may_write_is_refused(pyz: Path, home: Path) -> None:
    started(pyz, home, "status")
    unpacked(home).chmod(0o757)
    code, said = started(pyz, home, "status")
    assert code == 3 and "other users can write to this folder" in said


def test_what_cannot_be_unpacked_is_one_sentence(pyz: Path, home: Path) -> None:
    (home / "data").write_text("a file")
    code, said = started(pyz, home, "status", XDG_DATA_HOME=str(home / "data"))
    assert code == 3 and said.count("\n") == 1 and "set XDG_DATA_HOME to a folder" in said


def test_an_older_python_gets_as_far_as_the_message(pyz: Path) -> None:
    start = pyz.read_bytes().partition(b"\n")[2].partition(b"\n")[2].partition(b"PK\3\4")[0].decode()
    ast.parse(start, feature_version=(3, 6))
    assert start.endswith("sys.exit(started(sys.argv[0]))\n")
