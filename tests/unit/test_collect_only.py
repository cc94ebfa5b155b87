"""`torusrun collect RUN FOLDER --only PATTERNS`: single files of a run, whole, and nothing from outside of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_bad_login_nodes import FILE, announcing, leads_to, run_at
from tests.unit.verbs import Capsys, Patch
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder.copying import keep_only
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.upkeep.collect import PARTIAL
from torusrun.training.files.below import opened


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def collect(run: str | RunFolder, only: str, folder: Path | str) -> int:
    return main(["collect", run if isinstance(run, str) else run.run_id, str(folder), "--only", only])


@pytest.mark.parametrize(
    ("only", "copied"),
    [
        ("metrics.jsonl,attempts/*/job.out", {"metrics.jsonl", "attempts/1/job.out"}),
        ("attempts/1/logs", {f"attempts/1/logs/rank-000{rank}.log" for rank in range(4)}),
        ("checkpoints/last", {f"checkpoints/step-00000040/{name}" for name in ("state.pt", "manifest.json")}),
        ("./plan.json", {"plan.json"}),
    ],
)
def test_chosen_files_are_copied_with_their_paths(
    run: RunFolder, only: str, copied: set[str], tmp_path: Path, capsys: Capsys
) -> None:
    assert collect(run, only, tmp_path / "place") == 0
    assert files(tmp_path / "place") == copied and capsys.readouterr().out == f"{tmp_path}/place\n"
    assert collect(run, only, tmp_path / "place") == 2 and not list(tmp_path.rglob(".torusrun-*"))


@pytest.mark.parametrize(
    ("only", "why"),
    [
        ("../other/run.yaml", "is not below the run's folder"),
        (".secrets.env", "secrets and locks"),
        ("attempts/../.secrets.env", "is not below"),
        ("rank-0009.log", "has no file rank-0009.log"),
        ("linked/passwd", "has no file linked/passwd"),
        ("linked", "nothing of linked can be copied"),
    ],
)
def test_what_is_outside_secret_or_unclear_is_refused(
    run: RunFolder, only: str, why: str, tmp_path: Path, capsys: Capsys
) -> None:
    (run.folder / "linked").symlink_to("/etc")
    run.secrets.write_text("export KEY=very-secret\n")
    assert collect(run, only, tmp_path / "place") == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "place").exists() and not list(tmp_path.glob(f"{PARTIAL}*"))


def test_no_copy_has_a_hidden_file(run: RunFolder, tmp_path: Path) -> None:
    run.secrets.write_text("export KEY=very-secret\n")
    (run.attempt(1).folder / ".secrets.env").write_text("very-secret")
    assert collect(run, "*", tmp_path / "all") == 0
    assert "ledger.jsonl" in files(tmp_path / "all")
    assert not [path for path in (tmp_path / "all").rglob("*") if path.name.startswith(".")]


def as_stranger(command: str, folder: Path, *words: str) -> None:
    """Run a shell command as another user in a folder that he may write."""
    shell = ["setpriv", "--reuid", "4321", "--regid", "4321", "--clear-groups", "sh", "-ec", command, "sh", *words]
    subprocess.run(shell, cwd=folder, check=True, timeout=240)


@pytest.mark.needs("users")
def test_what_a_stranger_puts_in_place_of_an_open_folder_is_neither_written_nor_deleted(tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    shared.chmod(0o777)
    (mine := tmp_path / "mine").mkdir()
    (mine / "thesis.tex").write_text("years of work")
    with opened(shared) as beside, beside.folder("part/inner", 0o700) as part:
        as_stranger('mv part away && ln -s "$1" part', shared, str(mine))
        with part.unfinished("new", ".new.part") as file:
            file.write(b"whole")
        (shared / "away/inner/old").write_text("of an earlier copy")
        keep_only(part, {"new"})
        for name in ("part", "part/thesis.tex", "part/../../mine/thesis.tex", "/etc/passwd"):
            with pytest.raises(OSError, match="not followed|not the name"), beside.folder(name, 0o755):
                pass
        as_stranger("mkdir his && chmod 777 his && ln -s /etc his/etc", shared)
        with pytest.raises(OSError, match="belongs to user 4321"), beside.folder("his"):
            pass
        beside.remove("part")
    assert (mine / "thesis.tex").read_text() == "years of work" and os.listdir(mine) == ["thesis.tex"]
    assert os.listdir(shared / "away/inner") == ["new"] and not os.path.lexists(shared / "part")


@pytest.mark.parametrize("options", [["--only", "metrics.jsonl"], []])
def test_nothing_is_copied_to_where_strangers_may_replace_it(
    run: RunFolder, options: list[str], tmp_path: Path, capsys: Capsys
) -> None:
    (tmp_path / "shared/inner").mkdir(parents=True)
    (tmp_path / "shared").chmod(0o777)
    for place in ("shared", "shared/inner"):
        assert main(["collect", run.run_id, str(tmp_path / place / "copy"), *options]) == 3
        assert "shared: other users can write to this folder (mode 0777)" in capsys.readouterr().err
    assert files(tmp_path / "shared") == set()


FOLDER_ENTRY = {"name": "d", "kind": "folder", "mode": 0o755}


@pytest.mark.parametrize(
    ("path", "announced", "why"),
    [
        ("metrics.jsonl", [{"name": ".bashrc"}], "hidden files are not copied"),
        ("metrics.jsonl", [{"name": "train.py"}], "was not asked for"),
        ("metrics.jsonl", [{"name": "metrics.jsonl"}, {"name": "train.py"}], "was not asked for"),
        ("metrics.jsonl", [{"name": "metrics.jsonl/.ssh/authorized_keys"}], "hidden files are not copied"),
        ("metrics.jsonl", [{"name": "../train.py"}], "not the name of a file below the run"),
        ("attempts/*/job.out", [{"name": "attempts/1/train.py"}], "was not asked for"),
        (
            "attempts/*/job.out",
            [{**FOLDER_ENTRY, "name": "attempts"}, {"name": "attempts/job.out"}],
            "was not asked for",
        ),
        ("attempts/1/logs", [{**FOLDER_ENTRY, "name": "bin"}], "was not asked for"),
        ("checkpoints/last", [{"name": "checkpoints/.profile"}], "hidden files are not copied"),
    ],
)
def test_a_login_node_does_not_choose_what_is_written(
    home: Path, path: str, announced: list[dict[str, Any]], why: str, monkeypatch: Patch,
    capsys: Capsys,
) -> None:  # fmt: skip
    monkeypatch.chdir(home)
    of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    entries = [{**FILE, "size_bytes": 0, "sha256": of_nothing, **entry} for entry in announced]
    leads_to(monkeypatch, announcing(*entries), home / "bad")
    run_at("bad")
    assert collect("a-1", path, "place") in (2, 3)
    assert why in capsys.readouterr().err and not (home / "place").exists()
