"""A run is copied with regular files and folders alone, under a name of its own, whole or not at all."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from orchestrator.base import private
from orchestrator.base.errors import SiteError, UserError
from orchestrator.base.states import State
from orchestrator.cli.main import main
from orchestrator.runs.collect import collect
from orchestrator.runs.folder.records import End
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.state.account import USES
from tests.unit.run_folders import make, write_specs
from training.checkpoint.manifest import compose
from training.progress import Progress


@pytest.fixture
def run(home: Path) -> RunFolder:
    with private.umask(private.UMASK):
        return make(write_specs(home), End(State.COMPLETED, "all 4 ranks ended well"))


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_private_run_is_collected_for_the_user_alone(run: RunFolder, tmp_path: Path) -> None:
    into = collect(run, tmp_path / "kept", "all")
    assert {"plan.json", "ledger.jsonl", "attempts/1/logs/rank-0003.log"} <= names(into)
    assert {path.name for path in (into / "checkpoints").iterdir()} == {"step-00000020", "step-00000040"}
    for path in (into, *into.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert (into / "metrics.jsonl").read_bytes() == run.metrics.read_bytes()
    account = json.loads((into / "account.json").read_text())
    assert [(one["attempt"], one["state"]) for one in account["attempts"]] == [(1, "COMPLETED")]
    assert account["seconds"].keys() == set(USES)


def test_links_fifos_sockets_and_devices_are_left_out_and_reported(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("not for strangers")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("not for strangers")
    logs = run.attempt(1).logs
    (logs / "link.log").symlink_to(tmp_path / "secret")
    (logs / "device.log").symlink_to("/dev/zero")
    (run.folder / "linked").symlink_to(tmp_path / "secrets")
    (run.folder / "loop").symlink_to("loop")
    os.mkfifo(logs / "fifo.log")
    os.mknod(run.folder / "socket", stat.S_IFSOCK | 0o600)
    planted = {"link.log", "device.log", "linked", "loop", "fifo.log", "socket"}
    if os.geteuid() == 0:
        os.mknod(logs / "zero", 0o20666, os.makedev(1, 5))
        planted.add("zero")
    assert main(["collect", run.run_id, str(tmp_path / "kept")]) == 0
    said = capsys.readouterr().err
    for name in planted:
        assert f"/{name}: left out: this is " in said, said
    kept = tmp_path / "kept"
    assert not {Path(name).name for name in names(kept)} & planted
    assert not any("not for strangers" in path.read_text() for path in kept.rglob("*.log"))


def test_a_checkpoint_is_copied_without_what_a_stranger_put_there(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"not for strangers")
    newest = run.checkpoints / "step-00000040"
    (newest / "state.pt").unlink()
    (newest / "state.pt").symlink_to(tmp_path / "secret")
    listing = compose(Progress(40, 2560), 1.0, 1, {"state.pt": b"not for strangers"})
    (newest / "manifest.json").write_text(json.dumps(listing))
    told: list[str] = []
    into = collect(run, tmp_path / "kept", "newest", told.append)
    assert [path.name for path in (into / "checkpoints").iterdir()] == ["step-00000020"]
    assert "step-00000040" in told[0] and "the checkpoint is left out" in told[0]
    run.checkpoints.rename(tmp_path / "elsewhere")
    run.checkpoints.symlink_to(tmp_path / "elsewhere")
    assert not (collect(run, tmp_path / "again", "newest", told.append) / "checkpoints").exists()


def test_of_a_huge_sparse_file_only_what_was_written_is_copied(run: RunFolder, tmp_path: Path) -> None:
    with open(run.attempt(1).stdout, "r+b") as file:
        file.truncate(1 << 40)
    kept = collect(run, tmp_path / "kept", "none") / "attempts" / "1" / "job.out"
    assert kept.stat().st_size == 1 << 40 and kept.stat().st_blocks * 512 < 1 << 22


@pytest.mark.parametrize("there", ["file", "folder", "empty folder", "link to nothing"])
def test_nothing_that_exists_is_replaced(there: str, run: RunFolder, tmp_path: Path) -> None:
    into = tmp_path / "kept"
    if there == "file":
        into.write_text("mine")
    elif there == "link to nothing":
        into.symlink_to("nowhere")
    else:
        into.mkdir()
        if there == "folder":
            (into / "mine").touch()
    before = names(tmp_path)
    with pytest.raises(UserError, match="exists already"):
        collect(run, into, "newest")
    assert names(tmp_path) == before


def test_a_folder_that_looks_like_a_leftover_is_not_removed(run: RunFolder, tmp_path: Path) -> None:
    mine = tmp_path / ".kept.partial"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    collect(run, tmp_path / "kept", "newest")
    assert (mine / "thesis.tex").read_text() == "years of work"


def test_a_failure_leaves_nothing(run: RunFolder, tmp_path: Path) -> None:
    before = names(tmp_path)
    with pytest.raises(UserError, match="a name in it is longer than 255 bytes"):
        collect(run, tmp_path / ("x" * 300), "newest")
    with pytest.raises(SiteError, match="the run could not be collected: .*No such file"):
        collect(RunFolder(tmp_path / "no-run"), tmp_path / "kept", "newest")
    assert names(tmp_path) == before


def test_folders_nested_too_deep_are_left_out(run: RunFolder, tmp_path: Path) -> None:
    (run.folder / "/".join("x" * 40)).mkdir(parents=True)
    told: list[str] = []
    collect(run, tmp_path / "kept", "none", told.append)
    assert [text.endswith("left out: it lies too deep") for text in told] == [True]
