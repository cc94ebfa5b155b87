"""`torusrun cp RUN:PATH DEST`: single files out of a run, whole, and nothing from outside of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.folder.records import End
from torusrun.orchestrator.folder.run_folder import RunFolder
from torusrun.orchestrator.runs.collect import PARTIAL


@pytest.fixture
def run(home: Path) -> RunFolder:
    return make(write_specs(home), End(State.COMPLETED, "all 4 ranks ended well"))


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("sources", "dest", "there"),
    [
        (["metrics.jsonl"], "new.jsonl", {"new.jsonl"}),
        (["metrics.jsonl"], "old", {"old/metrics.jsonl"}),
        (["metrics.jsonl"], "new/", {"new/metrics.jsonl"}),
        (["metrics.jsonl", "attempts/*/job.out"], "new", {"new/metrics.jsonl", "new/job.out"}),
        (["attempts/1/logs"], "old", {f"old/logs/rank-000{rank}.log" for rank in range(4)}),
        (["attempts/1/logs"], "new", {f"new/rank-000{rank}.log" for rank in range(4)}),
        (["checkpoints/last"], "old", {f"old/step-00000040/{name}" for name in ("state.pt", "manifest.json")}),
    ],
)
def test_files_and_folders_go_where_cp_would_put_them(
    run: RunFolder, sources: list[str], dest: str, there: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place := tmp_path / "place").mkdir()
    (place / "old").mkdir()
    assert main(["cp", *(f"{run.run_id}:{path}" for path in sources), f"{place}/{dest}"]) == 0
    assert files(place) == there
    printed = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert printed and all(path.exists() and path.is_relative_to(place) for path in printed)
    assert not list(place.rglob(".torusrun-*"))


def test_files_that_exist_are_replaced_by_whole_ones_and_others_stay(run: RunFolder, tmp_path: Path) -> None:
    (logs := tmp_path / "logs").mkdir()
    (logs / "mine.log").write_text("mine")
    (logs / "rank-0000.log").write_text("of an earlier copy")
    assert main(["cp", f"{run.run_id}:attempts/1/logs", str(tmp_path)]) == 0
    assert (logs / "rank-0000.log").read_bytes() == run.attempt(1).rank_log(0).read_bytes()
    assert (logs / "mine.log").read_text() == "mine" and len(files(logs)) == 5


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["metrics.jsonl", "x"], "write RUN:PATH"),
        (["RUN:", "x"], "write RUN:PATH"),
        (["RUN:../other/run.yaml", "x"], "is not below the run's folder"),
        (["RUN:.secrets.env", "x"], "secrets and locks"),
        (["RUN:attempts/../.secrets.env", "x"], "is not below"),
        (["RUN:rank-0000.log", "x"], "has no file rank-0000.log"),
        (["RUN:linked/passwd", "x"], "has no file linked/passwd"),
        (["RUN:linked", "x"], "nothing there can be copied"),
        (["RUN:attempts/1/job.out", "RUN:elsewhere/job.out", "new"], "would both be"),
        (["RUN:attempts/1/job.*", "file"], "is not a folder"),
        (["nosuch:metrics.jsonl", "x"], "there is no run 'nosuch'"),
    ],
)
def test_what_is_outside_secret_or_unclear_is_refused(
    run: RunFolder, words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (run.folder / "linked").symlink_to("/etc")
    (run.folder / "elsewhere").mkdir()
    (run.folder / "elsewhere/job.out").write_text("another")
    run.secrets.write_text("export KEY=very-secret\n")
    (place := tmp_path / "place").mkdir()
    (place / "file").write_text("mine")
    monkeypatch.chdir(place)
    assert main(["cp", *(word.replace("RUN", run.run_id) for word in words)]) == 2
    assert why in capsys.readouterr().err
    assert files(place) == {"file"} and (place / "file").read_text() == "mine"
    assert not list(place.glob(f"{PARTIAL}*"))


def test_no_copy_has_a_hidden_file(run: RunFolder, tmp_path: Path) -> None:
    run.secrets.write_text("export KEY=very-secret\n")
    (run.attempt(1).folder / ".secrets.env").write_text("very-secret")
    assert main(["cp", f"{run.run_id}:*", str(tmp_path / "all")]) == 0
    assert "ledger.jsonl" in files(tmp_path / "all")
    assert not [path for path in (tmp_path / "all").rglob("*") if path.name.startswith(".")]
