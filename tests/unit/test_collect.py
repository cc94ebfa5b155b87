"""A run is copied with regular files and folders alone, under a name of its own, whole or not at all."""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.verbs import Capsys
from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder import patterns
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.upkeep.collect import PARTIAL, collect
from torusrun.training.checkpoint.manifest import compose
from torusrun.training.progress import Progress

CHECKPOINT = ("state.pt", "manifest.json")


@pytest.fixture
def run(home: Path) -> RunFolder:
    with private.umask(private.UMASK):
        return make(write_specs(home), DONE)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_private_run_is_collected_for_the_user_alone(run: RunFolder, tmp_path: Path) -> None:
    into = collect(run, tmp_path / "kept", "all")
    assert {"plan.json", "ledger.jsonl", "attempts/1/logs/rank-0003.log"} <= names(into)
    assert {path.name for path in (into / "checkpoints").iterdir()} == {"step-00000020", "step-00000040"}
    for path in (into, *into.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert (into / "metrics.jsonl").read_bytes() == run.metrics.read_bytes()


def test_links_fifos_sockets_and_devices_are_left_out_and_reported(
    run: RunFolder, tmp_path: Path, capsys: Capsys
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
    with suppress(PermissionError):
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


@pytest.mark.timeout(60)
def test_a_huge_sparse_state_of_a_checkpoint_is_not_read(run: RunFolder, tmp_path: Path) -> None:
    """Whoever owns the run makes 10 TB in no time; a checksum over them takes hours."""
    state = run.checkpoints / "step-00000040/state.pt"
    os.truncate(state, size := 10 << 40)
    manifest = state.with_name("manifest.json")
    listing = json.loads(manifest.read_text())
    listing["files"]["state.pt"]["bytes"] = size
    manifest.write_text(json.dumps(listing))
    told: list[str] = []
    into = collect(run, tmp_path / "kept", "newest", told.append)
    assert "this is a sparse file" in told[0]
    assert [path.name for path in (into / "checkpoints").iterdir()] == ["step-00000020"]


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
    assert [text.endswith("left out: it is nested too deeply") for text in told] == [True]


def cut_off(run: RunFolder, into: Path) -> Path:
    """A copy that was interrupted at a link, with what was copied before it; its folder."""
    (run.folder / "metrics.link").symlink_to("nowhere")

    def interrupted(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(run, into, "newest", interrupted)
    (run.folder / "metrics.link").unlink()
    (partial,) = into.parent.glob(f"{PARTIAL}*")
    return partial


def test_a_collect_that_was_interrupted_continues(run: RunFolder, tmp_path: Path, capsys: Capsys) -> None:
    into = tmp_path / "kept"
    partial = cut_off(run, into)
    assert not into.exists() and "the same command continues" in capsys.readouterr().err
    whole, damaged, half = (partial / name for name in ("ledger.jsonl", "image.json", "attempts/1/job.out"))
    before = whole.stat()
    damaged.write_bytes(bytes(len(damaged.read_bytes())))
    half.write_bytes(half.read_bytes()[:3])
    (partial / "checkpoints/step-00000010").mkdir(parents=True)
    (partial / "checkpoints/step-00000010/manifest.json").write_text("{}")  # of a checkpoint that the run has no more
    (partial / ".torusrun-0123").write_text("half a fi")
    collect(run, into, "newest")
    assert (into / "ledger.jsonl").stat().st_ino == before.st_ino, "a whole file is not copied again"
    for name in ("image.json", "attempts/1/job.out", "metrics.jsonl"):
        assert (into / name).read_bytes() == (run.folder / name).read_bytes(), name
    assert names(into / "checkpoints") == {"step-00000040", "step-00000040/manifest.json", "step-00000040/state.pt"}
    assert not list(tmp_path.rglob(".torusrun-*"))


def test_another_request_does_not_get_what_an_interrupted_one_left(run: RunFolder, tmp_path: Path) -> None:
    cut_off(run, tmp_path / "kept")
    (partial,) = tmp_path.glob(f"{PARTIAL}*")
    (partial / "attempts/1/logs").mkdir(parents=True, exist_ok=True)
    for file in (partial / "attempts/1/logs").iterdir():
        file.unlink()
    into = collect(run, tmp_path / "kept", "newest", only=patterns.parse_list("metrics.jsonl"))
    assert "attempts/1/logs" not in names(into), "it is empty"
    assert "metrics.jsonl" in names(into) and not {"ledger.jsonl", "plan.json", "attempts/1/end.json"} & names(into)


@pytest.mark.parametrize(
    ("only", "files"),
    [
        ("metrics.jsonl", {"metrics.jsonl"}),
        ("*.csv", {"a.csv", "attempts/1/logs/b.csv", "code/out/c.csv"}),
        ("/*.csv", {"a.csv"}),
        ("./code/o*/", {"code/out/c.csv", "code/out/d.txt"}),
        ("out", {"code/out/c.csv", "code/out/d.txt"}),
        ("attempts/*/job.???", {"attempts/1/job.out", "attempts/1/job.err"}),
        ("checkpoints/last,a.csv", {f"checkpoints/step-00000040/{name}" for name in CHECKPOINT} | {"a.csv"}),
        ("checkpoints/last/manifest.json", {"checkpoints/step-00000040/manifest.json"}),
        ("checkpoints/step-*20", {f"checkpoints/step-00000020/{name}" for name in CHECKPOINT}),
        ("checkpoints/*.txt", {"checkpoints/mine.txt"}),
        ("code/checkpoints", {"code/checkpoints/e.txt"}),
    ],
)  # fmt: skip
def test_only_what_the_patterns_choose_is_copied(
    run: RunFolder, only: str, files: set[str], tmp_path: Path, capsys: Capsys
) -> None:
    of_code = ("code/out/c.csv", "code/out/d.txt", "code/checkpoints/e.txt")
    for name in ("a.csv", "attempts/1/logs/b.csv", "checkpoints/mine.txt", *of_code):
        (run.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (run.folder / name).write_text(name)
    (run.folder / "link.csv").symlink_to("a.csv")
    into = tmp_path / "kept"
    assert main(["collect", run.run_id, str(into), "--only", only]) == 0
    assert {name for name in names(into) if (into / name).is_file()} == files
    assert ("link.csv: left out: this is a symbolic link" in capsys.readouterr().err) == ("*.csv" in only)


@pytest.mark.parametrize(
    ("only", "why"),
    [
        ("../other", "is not below the run's folder"), (".secrets.env", "secrets and locks"),
        ("code/.env", "secrets and locks"), ("a,,b", "names no file"), ("", "its value is empty"),
        ("no-such-*,none", "has no file no-such-\\* or none"),
    ],
)  # fmt: skip
def test_patterns_that_choose_nothing_are_refused(
    run: RunFolder, only: str, why: str, tmp_path: Path, capsys: Capsys
) -> None:
    before = names(tmp_path)
    assert main(["collect", run.run_id, str(tmp_path / "kept"), "--only", only]) == 2
    assert re.search(why, capsys.readouterr().err)
    assert names(tmp_path) == before


@pytest.mark.parametrize(("damaged", "chosen"), [(40, 20), (0, 0)])
def test_last_is_a_complete_checkpoint(damaged: int, chosen: int, run: RunFolder, tmp_path: Path) -> None:
    for path in sorted(run.checkpoints.glob("step-*")):
        step = int(path.name.removeprefix("step-"))
        if damaged in (step, 0):
            (path / "state.pt").write_bytes(b"x" * (path / "state.pt").stat().st_size)
    only = [patterns.parse("checkpoints/last")]
    if not chosen:
        with pytest.raises(UserError, match="no complete checkpoint"):
            collect(run, tmp_path / "kept", "none", only=only)
    else:
        collect(run, tmp_path / "kept", "none", only=only)
        assert [path.name for path in (tmp_path / "kept/checkpoints").iterdir()] == [f"step-{chosen:08d}"]
