"""Pyxis: the options of srun, what the site's login node says of it, and the squashfs that it starts."""

import hashlib
import os
import shlex
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.process import ENTRY
from torusrun.orchestrator.base.shipped import ROOT
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.images import pyxis, sif, source
from torusrun.orchestrator.images.builds import convert
from torusrun.orchestrator.images.builds.cache import Cache, CachedImage
from torusrun.orchestrator.images.command import Bind
from torusrun.orchestrator.images.definitions.inputs import file_checksum
from torusrun.orchestrator.job.gather import words
from torusrun.orchestrator.job.start import launch
from torusrun.orchestrator.keys.load import load_site
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.image import run_image
from torusrun.orchestrator.run.image.login import Login
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.schedulers import launchers
from torusrun.orchestrator.sites.checks import images

RECORDED = Path(__file__).parents[1] / "recorded" / "pyxis"
SITE = "scheduler: slurm\nlauncher: srun\nnode: {ranks: 2}\npython: /opt/py\n"
SQUASHFS = b"hsqs" + b"the root file system" * 100


def said(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def planned(folder: Path, container: str = "", run: str = "train: {}", site: str = SITE) -> Plan:
    (folder / "site.yaml").write_text(f"{site}container: {{runtime: pyxis, cache: {folder}/images{container}}}\n")
    (folder / "x.sqsh").write_bytes(SQUASHFS)
    (folder / "run.yaml").write_text(f"name: x\nsite: site.yaml\nnodes: 2\nimage: x.sqsh\n{run}\n")
    return plan(folder / "run.yaml")


def started(made: Plan, inherited: dict[str, str] | None = None) -> list[str]:
    image, srun = run_image.of_plan(made), launchers.named("srun")
    return launch.command(made, RunFolder(made.folder).attempt(1), srun, inherited or {}, image=image)


def a_sif(
    path: Path, form: int = 1, squashfs: bytes = SQUASHFS, start: int = 4096, length: int = len(SQUASHFS)
) -> Path:
    """A SIF with a definition and the root file system, as Apptainer lays it out."""
    header = sif.HEADER.pack(b"#!/usr/bin/env run\n", b"SIF_MAGIC\0", b"01\0", b"02\0", b"", 0, 0, 46, 48, 128, 0, 0, 0)

    def described(kind: int, form: int, role: int) -> bytes:
        fixed = sif.DESCRIPTOR.pack(kind, True, 1, 1, 0, start, length, 0, 0, 0, 0, 0, b"", form, role)
        return fixed.ljust(sif.DESCRIPTOR_BYTES, b"\0")

    table = described(0x4001, 0, 0) + described(0x4004, form, 2)
    path.write_bytes((header + table).ljust(4096, b"\0") + squashfs)
    return path


def test_srun_puts_the_wrapper_of_each_rank_into_the_image(tmp_path: Path, home: Path) -> None:
    made = planned(tmp_path, ", bind: ['/data sets:/d:ro'], args: [--container-env=HOME]")
    argv = started(made, {"NCCL_DEBUG": "INFO", "LD_LIBRARY_PATH": "/host", "PATH": "/host/bin"})
    (mounts,) = (word.partition("=")[2].split(",") for word in argv if word.startswith("--container-mounts="))
    assert f"--container-image={tmp_path}/x.sqsh" in argv and "/data sets:/d:ro" in mounts
    assert f"{made.folder}:{made.folder}" in mounts and any(m.endswith("/opt/torusrun/training:ro") for m in mounts)
    assert {"--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint"} < {*argv}
    assert {"--container-readonly", "--container-env=HOME"} < {*argv} and "--container-writable" not in argv
    assert f"--container-workdir={made.folder}/attempts/1" in argv
    (export,) = (word for word in argv if word.startswith("--export="))
    assert {"NCCL_DEBUG", "NVIDIA_VISIBLE_DEVICES"} < {*export.partition("=")[2].split(",")}
    assert "PATH" not in export, "the host's folders must not come into the image"
    assert argv[argv.index("/bin/sh") :][-2:] == ["torusrun.orchestrator.job.rank", f"{made.folder}/attempts/1"]


def test_an_image_that_may_be_written_and_gpus_that_are_not_there(tmp_path: Path, home: Path) -> None:
    made = planned(tmp_path, ", writable: tmpfs")
    assert "--container-writable" in started(made)
    attempt, srun = RunFolder(made.folder).attempt(1), launchers.named("srun")
    assert launch.environment(made, attempt, srun, {})["NVIDIA_VISIBLE_DEVICES"] == "void"
    made = planned(tmp_path, site=SITE.replace("ranks: 2", "ranks: 2, gpus: 2"), run="command: [hostname]")
    given = launch.environment(made, attempt, srun, {})
    assert (given["NVIDIA_VISIBLE_DEVICES"], given["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "compute,utility")


def test_the_image_s_own_python_runs_the_wrapper_after_the_variables_of_a_sif(tmp_path: Path) -> None:
    """The same words on this machine: the module is found in the named folder alone."""
    shutil.copytree(ROOT / ENTRY, tmp_path / "wrapper" / ENTRY)
    (tmp_path / "wrapper" / "training" / "a_rank.py").write_text(
        "import sys, os\nprint(sys.argv[1:], os.environ['OF_SIF'])\n"
    )
    (tmp_path / "90.sh").write_text("OF_SIF='a b'; export OF_SIF\n")
    (tmp_path / "python3").symlink_to(sys.executable)
    argv = pyxis.rank("torusrun.training.a_rank", "it's; $HOME")
    argv = [word.replace(pyxis.WRAPPER, f"{tmp_path}/wrapper") for word in argv]
    argv[2] = argv[2].replace("/.singularity.d/env", str(tmp_path))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(argv, text=True, capture_output=True, timeout=300, env=environment, cwd=tmp_path)
    assert done.stdout == '["it\'s; $HOME"] a b\n', done.stderr


@pytest.mark.parametrize("path", ["/a,b", "/a:b"])
def test_a_path_that_pyxis_would_split_is_refused(path: str, tmp_path: Path, home: Path) -> None:
    with pytest.raises(ValueError, match=f"Pyxis splits mounts at ':' and ',', and this path has one: '{path}'"):
        pyxis.options("/x.sqsh", [Bind(path)], "/")
    assert "Invalid --container-mounts argument: " in said("comma") and "Invalid --contain" in said("colon")
    made = planned(tmp_path)
    image = Image(f"{tmp_path}/x.sqsh", "0" * 64, "x")
    with pytest.raises(UserError, match=r"x\.sqsh: cannot be started: Pyxis splits .*; choose another folder"):
        run_image.pyxis_options(replace(made, folder=Path(path)), image, "/")


def test_srun_is_asked_for_the_options(tmp_path: Path) -> None:
    assert pyxis.is_offered(said("srun-help"))
    without = [line for line in said("srun-help").splitlines() if "pyxis" not in line and "--container-" not in line]
    assert any("--container " in line for line in without), "Slurm's own option must be in the text"
    assert not pyxis.is_offered("\n".join(without)) and not pyxis.is_offered("")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing-image", "n1: Pyxis: No such file or directory: /opt/pyxis-try/images/none.sqsh"),
        ("missing-mount", "n1: Pyxis: --container-mounts: source path does not exist: /no/such"),
        ("a-sif", "n1: Pyxis: Invalid image format: /opt/pyxis-try/home/tiny.sif"),
        ("comma", 'Pyxis: mount source must be a relative path, an absolute path, "tmpfs" or "umount"'),
    ],
)
def test_the_reason_of_pyxis_is_the_one_that_a_user_gets(name: str, reason: str) -> None:
    assert words(said(name)).last == reason


def test_enroot_says_why_it_imported_nothing() -> None:
    assert convert.complaint(said("enroot-import")) == "curl: (6) Could not resolve host: registry-1.docker.io"
    assert convert.complaint("x\n[ERROR] Could not find it\n[ERROR] more\ny\n") == "Could not find it"
    assert convert.complaint("") == "enroot said nothing"


@pytest.mark.parametrize(
    ("place", "reference"),
    [
        ("debian:12", "docker://debian:12"),
        ("pytorch/pytorch:2.6", "docker://pytorch/pytorch:2.6"),
        ("docker.io/library/debian:12", "docker://library/debian:12"),
        ("registry.example.org/a/b@sha256:0", "docker://registry.example.org#a/b:sha256:0"),
        ("debian:12@sha256:0", "docker://debian:sha256:0"),
        ("localhost:5000/a:1@sha256:0", "docker://localhost:5000#a:sha256:0"),
        ("localhost:5000/a", "docker://localhost:5000#a"),
    ],
)
def test_a_reference_has_the_form_of_enroot(place: str, reference: str) -> None:
    assert convert.reference(place) == reference


def test_the_squashfs_of_a_sif_is_copied_once_and_found_by_its_run(tmp_path: Path, home: Path) -> None:
    made = planned(tmp_path)
    a_sif(tmp_path / "mine.sif")
    named = source.parse(f"{tmp_path}/mine.sif")
    (tmp_path / "run.yaml").write_text("name: x\nsite: site.yaml\nimage: mine.sif\ntrain: {}\n")
    of_sif = plan(tmp_path / "run.yaml")
    with pytest.raises(UserError, match="is not converted to a squashfs, which Pyxis starts.*torusrun image build"):
        run_image.of_plan(of_sif)
    entry = run_image.squashed_directly(named.place, made.site, lambda line: None)
    assert entry and entry.path.read_bytes() == SQUASHFS and entry.path.suffix == ".sqsh"
    assert entry.sha256 == hashlib.sha256(SQUASHFS).hexdigest() and Cache(tmp_path / "images").get(entry.key) == entry
    found = run_image.of_plan(of_sif)
    assert found and (found.path, found.sha256) == (str(entry.path), entry.sha256)
    before = entry.path.stat().st_mtime_ns
    assert run_image.squashed_directly(named.place, made.site, lambda line: None) == entry
    assert entry.path.stat().st_mtime_ns == before, "it must not be copied again"
    assert {p.suffix for p in entry.path.parent.iterdir()} == {".sqsh", ".json", ".lock"}


def test_an_image_of_an_image_file_is_found_by_its_source(tmp_path: Path, home: Path) -> None:
    cache = Cache(tmp_path)
    cache.make()
    path = a_sif(cache.image("a" * 64))
    made = CachedImage("a" * 64, path, "mine", "d", file_checksum(path), 1, 1.0, 1.0, "x", {"l": "v"}, source="s")
    cache.publish(made, path)
    entry = convert.of_sif(made, cache, lambda line: None)
    assert entry.labels == {"l": "v"} and entry.key == convert.key_of_sif(made.sha256)
    assert cache.newest_of(["s"]) == made and cache.newest_of(["s"], ".sqsh") == entry
    assert {e.path for e in cache.entries()} == {made.path, entry.path}


@pytest.mark.parametrize(
    ("form", "squashfs", "says"),
    [
        (5, SQUASHFS, "its file system is encrypted"),
        (3, SQUASHFS, "has no squashfs"),
        (1, SQUASHFS[:-9], "its squashfs is not within the file"),
    ],
)
def test_a_sif_that_cannot_be_converted(form: int, squashfs: bytes, says: str, tmp_path: Path) -> None:
    path = a_sif(tmp_path / "x.sif", form, squashfs)
    own = CachedImage("", path, "x", "", file_checksum(path), 0, 0.0, 0.0, "x")
    with pytest.raises((UserError, SiteError), match=says):
        convert.of_sif(own, Cache(tmp_path / "images"), lambda line: None)
    assert not [*tmp_path.glob("images/*.sqsh"), *tmp_path.glob("images/.*")]


@pytest.mark.parametrize("damage", [b"", b"x" * 200, struct.pack("<32s10s22s", b"", b"SIF_MAGIC\0", b"")])
def test_a_file_that_is_no_sif_is_one_message(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.sif").write_bytes(damage)
    with pytest.raises(UserError, match="this is not a SIF"):
        sif.squashfs(tmp_path / "x.sif")


@pytest.mark.parametrize(("start", "length"), [(4096, -1), (4096, 0), (-1, 100), (4097, len(SQUASHFS)), (2**62, 2**62)])
def test_a_squashfs_outside_its_sif_is_one_message(start: int, length: int, tmp_path: Path) -> None:
    assert sif.squashfs(a_sif(tmp_path / "good.sif")) == (4096, len(SQUASHFS))
    path = a_sif(tmp_path / "x.sif", start=start, length=length)
    with pytest.raises(UserError, match=r"x.sif: the SIF is damaged: its squashfs is not within the file"):
        sif.squashfs(path)


@pytest.mark.parametrize("place", [-1, 2**40])
def test_a_sif_whose_table_is_elsewhere_is_one_message(place: int, tmp_path: Path) -> None:
    path = a_sif(tmp_path / "x.sif")
    head = [*sif.HEADER.unpack(path.read_bytes()[: sif.HEADER.size])]
    head[9] = place
    path.write_bytes(sif.HEADER.pack(*head) + path.read_bytes()[sif.HEADER.size :])
    with pytest.raises(UserError, match=r"x.sif: the SIF is damaged: it has no table of its parts"):
        sif.squashfs(path)


def test_an_image_is_imported_by_the_enroot_on_path(tmp_path: Path, home: Path) -> None:
    """A real program in place of enroot: what it is called with, and what is left if it fails."""
    enroot = tmp_path / "enroot"
    enroot.write_text('#!/bin/sh\nshift; echo "$@" >&2\n[ "$3" = docker://good ] && printf hsqs > "$2"\n')
    enroot.chmod(0o755)
    cache = Cache(tmp_path / "images")
    environment = {"PATH": "/usr/bin:/bin"}
    entry = convert.imported("docker://good", "good", cache, str(enroot), environment, lambda line: None)
    assert entry.path.read_bytes() == b"hsqs" and entry.key == convert.key_of_import("docker://good")
    with pytest.raises(SiteError, match=r"docker://bad was not imported: --output .* docker://bad \(log: "):
        convert.imported("docker://bad", "bad", cache, str(enroot), environment, lambda line: None)
    assert len([*cache.folder.glob("*.sqsh")]) == 1 and not [*cache.folder.glob(".*")]


def test_a_squashfs_is_for_pyxis_alone(tmp_path: Path, home: Path) -> None:
    planned(tmp_path)
    assert source.parse(f"{tmp_path}/x.sqsh").kind == source.parse("/none.squashfs").kind == "squashfs"
    (tmp_path / "site.yaml").write_text(SITE)
    with pytest.raises(UserError, match=r"x\.sqsh' is for Pyxis; this site has none"):
        run_image.of_plan(plan(tmp_path / "run.yaml"))
    (tmp_path / "site.yaml").write_text(f"{SITE}container: {{runtime: pyxis}}\n")
    with pytest.raises(UserError, match="Pyxis starts this file unchanged"):
        run_image.squashed_directly(f"{tmp_path}/x.sqsh", load_site(str(tmp_path / "site.yaml")), lambda line: None)


@pytest.mark.parametrize("word", ["plain", "./plain"])
def test_build_recognises_an_image_by_its_content(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a suffix, and with bytes that are no text."""
    monkeypatch.chdir(tmp_path)
    Path("site.yaml").write_text(f"{SITE}container: {{runtime: pyxis, cache: images}}\n")
    Path("plain").write_bytes(SQUASHFS + b"\xff" * 2_000_000)
    assert main(["image", "build", word, "--site", "./site.yaml"]) == 2
    assert capsys.readouterr().err == (
        "torusrun: ./plain: Pyxis starts this file unchanged; a run names it as its 'image'\n"
    )
    a_sif(Path("plain"))
    assert main(["image", "build", word, "--site", "./site.yaml"]) == 0
    assert Path(capsys.readouterr().out.strip()).read_bytes() == SQUASHFS


@pytest.mark.parametrize(
    ("site", "says"),
    [
        ("scheduler: pbs\nlauncher: mpirun\n", "a plug-in of Slurm's srun, and this site starts its ranks by mpirun"),
        ("scheduler: gridengine\nlauncher: mpirun\n", "starts its ranks by mpirun (gridengine)"),
        ("scheduler: local\nlauncher: spawn\n", "starts its ranks by spawn (local)"),
        ("scheduler: slurm\nlauncher: mpirun\n", "name apptainer or singularity, or leave it out"),
        (", gpu: rocm", "'container.gpu: rocm' does not work with Pyxis"),
    ],
)
def test_keys_that_do_not_work_with_pyxis_are_one_message(
    site: str, says: str, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, more = (SITE, site) if site.startswith(",") else (site, "")
    (tmp_path / "site.yaml").write_text(f"{head}container: {{runtime: pyxis{more}}}\n")
    (tmp_path / "run.yaml").write_text("name: x\nsite: site.yaml\ntrain: {}\n")
    assert main(["plan", str(tmp_path / "run.yaml")]) == 2
    error = capsys.readouterr().err
    assert says in error and f"{tmp_path}/site.yaml:" in error and len(error.strip().splitlines()) == 1, error


def test_a_shell_joins_the_container_of_the_rank() -> None:
    argv = pyxis.beside("/usr/bin/nsenter", 77, "/runs/a b", ["sh", "-c", "x y"])
    assert shlex.join(argv).startswith("/usr/bin/nsenter --target=77 --user --mount")
    inside = argv[argv.index("/bin/sh") :]
    assert inside[-4:] == ["/runs/a b", "sh", "-c", "x y"]


def test_the_shell_enters_its_folder_inside(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    argv = pyxis.beside("nsenter", 77, str(folder), ["pwd"])
    said = subprocess.run(argv[argv.index("/bin/sh") :], capture_output=True, text=True, cwd="/", timeout=300)
    assert said.stdout == f"{folder}\n"


@pytest.mark.parametrize(
    ("text", "level", "says"),
    [
        ("srun-help", "ok", "has the options of Pyxis"),
        ("", "warning", "has no --container-image"),
        (None, "warning", "did not say"),
    ],
)
def test_doctor_asks_srun_for_pyxis(text: str | None, level: str, says: str, tmp_path: Path, home: Path) -> None:
    """The output is a recorded one, printed by a script in the place of srun."""
    if text is not None:
        (tmp_path / "output").write_text(said(text) if text else "Usage: srun [OPTIONS...] executable [args...]\n")
        (tmp_path / "srun").write_text(f"#!/bin/sh\ncat {tmp_path}/output\n")
        (tmp_path / "srun").chmod(0o755)
    (tmp_path / "site.yaml").write_text(f"{SITE}container: {{runtime: pyxis, cache: {tmp_path}/images}}\n")
    there = {"PATH": f"{tmp_path}:/bin" if text is not None else str(tmp_path)}
    runtime, *others = images.image_checks(load_site(str(tmp_path / "site.yaml")), Login(there, None, "not found"))
    assert (runtime.outcome, runtime.name) == (level, "container runtime") and says in runtime.said, runtime
    assert [check.outcome for check in others] == ["ok", "ok"], "the cache is looked at, too"
