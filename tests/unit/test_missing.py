"""Files that a run names and that are not there: refused where they lie, and accepted where this machine cannot see."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.verbs import Capsys, Patch
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.api import dry_run
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.plan import missing
from torusrun.orchestrator.run.plan.plan import plan

SITE = "scheduler: {scheduler}\nlauncher: spawn\nnode: {{ranks: 2}}\nruns: {folder}/../runs\n{more}"
WEIGHTS = "train: {model: {weights: ROOT.safetensors}}"
DATA = "train: {model: resnet18, data: {name: imagefolder, options: {root: ROOT}}}"


@pytest.fixture
def folder(tmp_path: Path, home: Path, monkeypatch: Patch) -> Path:
    (tmp_path := tmp_path / "work").mkdir()
    for name in ("train.py", "tool.sh", "ready.sif"):
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "bin").mkdir()
    for name in ("python", "torch", "sh"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def written(folder: Path, run: str, scheduler: str = "local", more: str = "") -> Path:
    (folder / "site.yaml").write_text(SITE.format(scheduler=scheduler, folder=folder, more=more))
    (folder / "run.yaml").write_text(f"name: x\nsite: site.yaml\n{run.replace('ROOT', str(folder / 'images'))}\n")
    return folder / "run.yaml"


@pytest.mark.parametrize(
    ("run", "place", "says"),
    [
        ("command: [python, trian.py]", "3:19", "'command': there is no FOLDER/trian.py; did you mean 'train.py'?"),
        ("command: [python, -u, -B, gone.py]", "3:27", "FOLDER/gone.py; a path in 'command' begins at the folder of"),
        ("command: [sh, -e, gone.sh]", "3:19", "there is no FOLDER/gone.sh"),
        ("command: [python, ../train.py]", "3:19", "'../train.py' leads out of the folder of the code"),
        ("command: [pyhton, train.py]", "3:11", "no program 'pyhton' in the folders of PATH; did you mean 'python'?"),
        (
            "command: [train.py]",
            "3:11",
            "'train.py' is a file of the code, and a program is looked for in the folders of "
            "PATH; write [python, train.py]",
        ),
        ("command: [ready.sif, x]", "3:11", "write [./ready.sif]"),
        ("command: [zzz]", "3:11", "no program 'zzz' in the folders of PATH; write its full path"),
        (
            "command: [./tool.sh]",
            "3:11",
            "FOLDER/tool.sh cannot be executed; `chmod +x` it, or write",
        ),
        ("command: [./gone]", "3:11", "there is no FOLDER/gone"),
        ("command: [./link]", "3:11", "FOLDER/link is a link to nothing"),
        ("command: [/nowhere/x]", "3:11", "there is no /nowhere/x"),
        ("command: [python, /nowhere/x.py]", "3:19", "there is no /nowhere/x.py"),
        ("setup: ['true']\ncommand: [python, gone.py]", "4:19", "there is no FOLDER/gone.py"),
        ("image: ./gone.sif\ncommand: [x]", "3:8", "'image': there is no FOLDER/gone.sif"),
        ("image: ready.siff\ncommand: [x]", "3:8", "'image': there is no image file 'ready.siff'"),
        ("image: docker-archive:gone.tar\ncommand: [x]", "3:8", "'image': there is no FOLDER/gone.tar"),
        ("image: ready.sif\ncommand: [python, gone.py]", "4:19", "there is no FOLDER/gone.py"),
        (DATA, "3:68", "'train.data.options.root': there is no FOLDER/images"),
        (WEIGHTS, "3:26", "'train.model.weights': there is no FOLDER/images.safetensors"),
    ],
)
def test_what_is_missing_is_refused(run: str, place: str, says: str, folder: Path, capsys: Capsys) -> None:
    spec = written(folder, run)
    for verb in ("plan", "submit"):
        assert main([verb, str(spec)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"torusrun: {spec}:{place}: ") and said.count("\n") == 1
        assert says.replace("FOLDER", str(folder)) in said
    assert not (folder.parent / "runs").exists()


@pytest.mark.parametrize(
    ("run", "more"),
    [
        ("command: [python, train.py]", ""),
        ("command: [python, -c, gone.py]", ""),
        ("command: [python, -m, gone]", ""),
        ("command: [python, -W, ignore, gone.py]", ""),
        ("command: [torch, gone.py]", ""),
        ("code: none\ncommand: [python, gone.py]", ""),
        ("setup: [make]\ncommand: [./gone]", ""),
        ("setup: [make]\ncommand: [gone]", ""),
        ("command: [gone]", "environment: {modules: [gone]}"),
        ("command: [gone]", "env: {PATH: /gone}"),
        ("image: ready.sif\ncommand: [/gone, /gone.py]", ""),
        ("command: [/nowhere/x]", "host: login.example"),
        ("image: /there/x.sif\ncommand: [gone]", "host: login.example"),
        (DATA, "host: login.example"),
        (DATA, "setup: [unpack]"),
        (WEIGHTS, "setup: [fetch]"),
        (f"image: ready.sif\n{DATA}", ""),
        (DATA.replace("ROOT", "$SCRATCH/images"), ""),
    ],
)
def test_what_may_be_there_is_accepted(run: str, more: str, folder: Path) -> None:
    assert plan(written(folder, run, more=more))


def test_files_of_other_runs_may_be_made_before_a_run_begins(folder: Path) -> None:
    for run in (DATA, "command: [python, /nowhere/x.py]"):
        assert plan(written(folder, run), later=True)
    with pytest.raises(UserError, match=r"there is no .*gone\.py"):
        plan(written(folder, "command: [python, gone.py]"), later=True)


@pytest.mark.parametrize(
    ("kind", "point", "refused"),
    [("nfs4", "/", False), ("ext4", "/", False), ("nfs4", "FOLDER", True), ("xfs", "FOLDER", False)],
)
def test_nodes_of_a_cluster_share_its_network_file_systems(
    kind: str, point: str, refused: bool, folder: Path, monkeypatch: Patch
) -> None:
    """By /proc/self/mountinfo. This machine may be a laptop, so that its own disks say nothing."""
    mounts = folder / "mountinfo"
    place = point.replace("FOLDER", str(folder))
    mounts.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:1 / {place} rw - {kind} server:/x rw\n")
    monkeypatch.setattr(missing, "MOUNTINFO", mounts)
    spec = written(folder, DATA, "slurm")
    if refused:
        with pytest.raises(UserError, match="there is no .*images"):
            plan(spec)
    else:
        assert plan(spec)


@pytest.mark.parametrize("name", ["ignored.py", ".venv/bin/python"])
def test_what_is_not_copied_cannot_be_started(name: str, folder: Path, monkeypatch: Patch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(folder.parent / "home"))
    subprocess.run(["git", "init", "-q", str(folder)], check=True, timeout=240)
    (folder / ".gitignore").write_text("ignored.py\nbin\n")
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/pyvenv.cfg").write_text("")
    for path in (folder / "ignored.py", folder / ".venv/bin/python"):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    spec = written(folder, f"command: [./{name}]")
    with pytest.raises(UserError, match=f"{name} is not copied with the code: git ignores it, or"):
        dry_run(spec)
    assert main(["submit", str(spec)]) == 2 and not os.listdir(folder.parent / "runs")
    assert dry_run(written(folder, "command: [python3, train.py]"))


@pytest.mark.parametrize(
    ("lacks", "more", "says"),
    [
        (
            "torch sklearn",
            "",
            "'train' needs torch and scikit-learn, which PYTHON does not have: `pip install torch scikit",
        ),
        ("torch", "setup: ['true']\n", ""),
        ("torch", "env: {PYTHONPATH: /opt/torch}\n", ""),
        ("torch", "environment: {modules: [torch]}\n", ""),
        ("", "", ""),
    ],
)
def test_a_training_without_its_packages_is_refused(
    lacks: str, more: str, says: str, folder: Path, capsys: Capsys
) -> None:
    python = folder / "bin" / "python"
    python.write_text(f"#!/bin/sh\necho a banner\necho lacks {lacks}\n")
    file = written(folder, "train: {epochs: 1}", more=f"python: {python}\n{more}")
    assert main(["submit", str(file), "--dry-run"]) == (2 if says else 0)
    assert says.replace("PYTHON", str(python)) in capsys.readouterr().err
    assert main(["plan", str(file)]) == 0, "what a training would cost is known without its packages"
