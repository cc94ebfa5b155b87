"""The command line: help, exit codes, and what is written when nothing should be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import torusrun
from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.cli.main import VERBS, main

ROOT = Path(__file__).resolve().parents[2]
DIGITS = str(ROOT / "examples" / "digits.yaml")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "example" in said and f"  torusrun {verb}" in said


@pytest.mark.parametrize("stream", ["0<&-", "1>&-", "2>&-"])
def test_a_stream_that_is_closed_leads_nowhere(stream: str, home: Path) -> None:
    command = f'"{sys.executable}" -m torusrun.orchestrator.cli.main init mine --scheduler local --yes {stream}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0 and "defect" not in done.stdout + done.stderr, done
    text = (home / ".config" / "torusrun" / "sites" / "mine.yaml").read_text().partition("\n")[2]
    assert text.startswith("# This machine") and text.rstrip().endswith("# in your home folder")


def test_a_plan_its_script_and_the_schemas_are_shown_and_nothing_is_written(home: Path, capsys: Capsys) -> None:
    script = prints(capsys, "submit", DIGITS, "--dry-run", "--quiet", "--site", "slurm")
    assert script.startswith("#!/usr/bin/env bash\n#SBATCH --job-name=digits-")
    assert list(home.iterdir()) == [], "it must write nothing"
    assert "2x2: 2 rows of 2 ranks" in prints(capsys, "plan", DIGITS)
    plan = json.loads(prints(capsys, "plan", DIGITS, "--json"))
    assert (plan["schema"], plan["grid"], plan["ranks"], plan["spec"]["train"]["seed"]) == (1, [2, 2], 4, 1)
    assert list(home.iterdir()) == []
    for what in ("run", "site"):
        assert json.loads(prints(capsys, "schema", what))["title"] == f"torusrun {what}"


def test_status_without_any_run(home: Path, capsys: Capsys) -> None:
    assert "no runs yet" in prints(capsys, "status")
    assert json.loads(prints(capsys, "status", "--json")) == {"schema": 1, "runs": []}


@pytest.mark.parametrize("verb", ["status", "watch", "logs", "cancel", "resume"])
def test_an_unknown_run(verb: str, home: Path, capsys: Capsys) -> None:
    assert "there is no run 'digits-2026'" in refuses(capsys, verb, "digits-2026")


def test_a_missing_scheduler_is_a_failure_of_the_site_and_leaves_no_run(
    home: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    assert main(["submit", DIGITS, "--site", "slurm"]) == 3
    assert "sbatch: not found on this machine" in capsys.readouterr().err
    assert list((home / "torusrun" / "runs").iterdir()) == [], "a refused run must leave no folder"
    assert "no runs yet" in prints(capsys, "status")


def test_the_package_shows_its_public_names_alone_which_are_loaded_on_first_use() -> None:
    assert dir(torusrun) == sorted(torusrun.__all__)
    assert Path(torusrun.__file__).with_name("py.typed").exists(), "without it, the types are unknown to users"
    assert callable(torusrun.submit) and callable(torusrun.plan)
    with pytest.raises(AttributeError, match="has no attribute 'sumbit'"):
        torusrun.sumbit  # noqa: B018


def test_an_unexpected_error_prints_one_line_and_writes_a_report(
    capsys: Capsys, monkeypatch: Patch, tmp_path: Path
) -> None:
    def broken(args: object) -> int:
        raise KeyError("a \x1b[31mkey")

    monkeypatch.setattr("torusrun.orchestrator.cli.verbs.examples.run", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["examples"]) == 3
    said = capsys.readouterr().err
    (report,) = tmp_path.glob("torusrun-defect-*.txt")
    assert said.count("\n") == 1 and str(report) in said and "\x1b" not in said, said
    assert "Traceback" in report.read_text() and report.stat().st_mode & 0o077 == 0


def test_what_is_written_is_its_users_alone_whatever_the_umask(home: Path) -> None:
    """A submission under umask 000: nothing that it made can be written, or read, by others."""
    before = os.umask(0)
    try:
        (home / "site.yaml").write_text(f"scheduler: slurm\nlauncher: srun\nruns: {home}/a/runs\n")
        (home / "run.yaml").write_text("name: open\nsite: ./site.yaml\ntrain: {}\n")
        (home / "bin").mkdir()
        (home / "bin" / "sbatch").write_text("#!/bin/sh\necho 7\n")
        (home / "bin" / "sbatch").chmod(0o755)
        env = {**os.environ, "PATH": f"{home}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
        said = subprocess.run([sys.executable, "-m", "torusrun", "submit", "run.yaml"], cwd=home, env=env,
                              text=True, capture_output=True, timeout=60)  # fmt: skip
    finally:
        os.umask(before)
    assert said.returncode == 0, said.stderr
    made = [home / "a", *(home / "a").rglob("*"), *(home / ".local").rglob("*")]
    assert len(made) > 8
    open_ones = [path for path in made if not path.is_symlink() and path.stat().st_mode & 0o077]
    assert not open_ones, f"others can get at {open_ones}"
