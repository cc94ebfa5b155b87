"""Run files, sites and settings that there cannot be: each gets one clear message."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.verbs import Capsys, Patch, refuses
from torusrun.orchestrator.cli.main import main

GOOD = "name: digits\nsite: local\n"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: None, "there is no such file"),
        (lambda p: p.mkdir(), "this is a folder"),
        (lambda p: p.write_bytes(b"name: \xff\xfe\n"), "not UTF-8"),
        (lambda p: p.write_bytes(b"#" * 2_000_000), "too large"),
    ],
    ids=["missing", "folder", "not UTF-8", "huge"],
)
def test_a_file_that_cannot_be_read(make, says: str, home: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    spec = tmp_path / "run.yaml"
    make(spec)
    assert says in refuses(capsys, "submit", str(spec))
    assert not (home / "torusrun").exists(), "a mistake must leave nothing behind"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("nodes", "write it as key=value"),
        ("=3", "write it as key=value"),
        ("--nods=3", "'--nods'"),
        ("nodes.x=3", "'nodes' holds no keys to set"),
        ("train.optimizer.lr=fast", "--set train.optimizer.lr=fast: 'train.optimizer.lr' must be a number"),
        ("train.lr=0.1", "did you mean 'optimizer.lr'?"),
        ("train.model=vgg", "--set train.model=vgg: 'train.model.name' must be one of resnet-digits"),
        ("trian.lr=1", "did you mean 'train'?"),
        ("grid=[", "this is not YAML"),
        ("queue=a\udcff", "this is not UTF-8 text"),
        ("queue=\ud800", "this is not UTF-8 text"),
        ("env.\udcff=a", "this is not UTF-8 text"),
        ('queue="\\UFFFFFFFF"', "there is no character of this number"),
        ('queue="\\udcff"', "holds half a character"),
        ("queue=a\0b", "this is not YAML"),
        ("nodes=" + "9" * 100_000, "'nodes' must be a whole number"),
        ("site=" + "x" * 5000, "longer than 4000 characters"),
        ("grid=" + "[" * 5000, "nested too deeply"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, says: str, home: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    spec = tmp_path / "run.yaml"
    spec.write_text(GOOD + "nodes: 1\n")
    err = refuses(capsys, "plan", str(spec), f"--set={setting}")
    assert says in err and len(err.splitlines()) == 1 and len(err) < 2000


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("x" * 300, "longer than 255 bytes"), ("x/" * 3000, "longer than 40"), ("a\udcff", "not UTF-8"),
        ("./a\nb", "control character"), ("~nosuchuser/x.yaml", "there is no user 'nosuchuser'"),
        ("a: [b", "there is no site 'a: [b'"), ("", "there is no home folder"),
    ],
)  # fmt: skip
def test_a_wrong_site_is_named(
    name: str,
    says: str,
    home: Path,
    tmp_path: Path,
    capsys: Capsys,
    monkeypatch: Patch,
) -> None:
    (tmp_path / "run.yaml").write_text(GOOD)
    if not name:
        monkeypatch.setenv("HOME", "relative")
    for argv in (
        ["plan", str(tmp_path / "run.yaml"), "--site", name or "local"],
        ["image", "ls", "--site", name or "local"],
    ):
        assert main(argv) == 2, argv
        err = capsys.readouterr().err
        assert says in err and len(err.splitlines()) == 1, err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("x" * 300, "longer than 255 bytes"), ("x/" * 3000, "longer than 4095 bytes"), ("a\0b", "a NUL character"),
        ("a\udcff", "not UTF-8"), ("a\nb", "a line break"), ("/dev/zero", "not a regular file"),
        ("pipe", "'name' is missing"),
    ],
)  # fmt: skip
def test_a_run_file_with_an_impossible_name(
    name: str,
    says: str,
    home: Path,
    tmp_path: Path,
    capsys: Capsys,
    monkeypatch: Patch,
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for verb in ("plan", "submit", "predict"):
        assert main([verb, name]) == 2, verb
        err = capsys.readouterr().err
        assert says in err and len(err.splitlines()) <= 2, err


def test_a_working_directory_that_is_gone(home: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    (tmp_path / "run.yaml").write_text(GOOD + "train: {}\n")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    (tmp_path / "mine.yaml").write_text("scheduler: local\nlauncher: spawn\nruns: runs\n")
    assert main(["plan", str(tmp_path / "run.yaml"), "--site", str(tmp_path / "mine.yaml")]) == 2
    assert "the working directory does not exist any more" in capsys.readouterr().err


@pytest.mark.needs("users")
def test_a_home_that_is_closed_is_reported(tmp_path: Path) -> None:
    """As a user who is not root: root can look into every folder."""
    (tmp_path / "closed").mkdir(mode=0o700)
    # Imported before: he may not be able to read them.
    needed = ", ".join(
        f"torusrun.orchestrator.{name}"
        for name in ("cli.main", "cli.elsewhere", "cli.verbs.image", "run.image.building", "keys.load", "base.defect")
    )
    program = f"import os, {needed}; os.setuid(65534); raise SystemExit(torusrun.orchestrator.cli.main.main())"
    argv = [sys.executable, "-c", program, "image", "ls", "--site", "slurm"]
    env = {**os.environ, "HOME": str(tmp_path / "closed")}
    said = subprocess.run(argv, env=env, text=True, capture_output=True, timeout=300, cwd="/")
    assert said.returncode == 2 and "Permission denied" in said.stderr and len(said.stderr.splitlines()) == 1, said


def test_a_broken_site_is_named_by_its_own_file(home: Path, tmp_path: Path, capsys: Capsys) -> None:
    site = tmp_path / "mine.yaml"
    site.write_text("scheduler: Slurm 22\nlauncher: srun\nrequest: {memory: 60 gigs}\nsetup: make\n")
    (tmp_path / "run.yaml").write_text("name: digits\nsite: mine.yaml\n")
    err = refuses(capsys, "plan", str(tmp_path / "run.yaml"))
    for says in (f"{site}:1:12: 'scheduler'", f"{site}:3:19: 'request.memory'", f"{site}:4:8: 'setup'"):
        assert says in err
