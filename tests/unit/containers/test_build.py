"""Builds with a stand-in for the runtime: once for all who ask, whole or not at all, failures in one line."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.containers import complaints
from orchestrator.containers.build import BuildFailed, Options, build, command, prepare
from orchestrator.containers.cache import Cache, Entry
from orchestrator.containers.definition import Variant
from orchestrator.containers.runtime import Runtime
from orchestrator.errors import SiteError, UserError
from tests.unit.containers.conftest import fake

BUILDER = """
import sys
from pathlib import Path
from orchestrator.containers.build import Options, build, prepare
from orchestrator.containers.cache import Cache
from orchestrator.containers.definition import Variant
from orchestrator.containers.runtime import Runtime
folder = Path(sys.argv[1])
name, inputs = prepare(folder / "small.yaml", Variant(), Options())
print("ready", flush=True)
runtime = Runtime(str(folder / "apptainer"), "apptainer", (1, 4, 5))
print(build(name, inputs, Cache(folder / "images"), lambda: runtime, Options()).sha256)
"""


def made(small: Path, runtime: Runtime, options: Options | None = None, **more: object) -> Entry:
    options = options or Options()
    name, inputs = prepare(small, Variant(), options)
    return build(name, inputs, Cache(small.parent / "images"), lambda: runtime, options, **more)  # type: ignore[arg-type]


def names(small: Path) -> set[str]:
    """What lies in the cache, by what it is."""
    return {path.name[64:] for path in (small.parent / "images").iterdir()}


def builder(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", BUILDER, str(folder)], stdout=subprocess.PIPE, text=True)


def test_a_build_leaves_an_image_and_what_is_known_of_it(small: Path, runtime: Runtime) -> None:
    lines: list[str] = []
    entry = made(small, runtime, progress=lines.append, examine=lambda image: {"torch": "2.13.0"})
    assert entry.name == "small" and entry.versions == {"torch": "2.13.0"} and entry.built_by == "apptainer 1.4.5"
    assert entry.labels["torusrun.recipe"] == "small" and entry.path.read_text() == entry.definition
    assert names(small) == {".sif", ".json", ".log", ".lock"}
    assert "INFO:    Build complete" in lines


def test_a_second_build_takes_the_image_at_once(
    small: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKE_COUNT", str(tmp_path / "count"))
    first = made(small, runtime)
    started = time.monotonic()
    assert made(small, Runtime("/no/such/command", "apptainer", (1, 0))) == first
    assert time.monotonic() - started < 1
    assert len((tmp_path / "count").read_text().splitlines()) == 1


def test_two_builds_at_once_build_once(small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake(tmp_path)
    monkeypatch.setenv("FAKE_COUNT", str(tmp_path / "count"))
    monkeypatch.setenv("FAKE_SECONDS", "0.6")
    both = [builder(tmp_path), builder(tmp_path)]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0] and said[0] == said[1]
    assert len((tmp_path / "count").read_text().splitlines()) == 1


def test_a_build_killed_at_any_moment_leaves_nothing_broken(
    small: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake(tmp_path)
    moments = random.Random(3)
    monkeypatch.setenv("FAKE_SECONDS", "0.3")
    for _ in range(10):
        killed = builder(tmp_path)
        assert killed.stdout and killed.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0, 0.4))
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        killed.stdout.close()
        cache = Cache(tmp_path / "images")
        for entry in cache.entries():
            assert cache.verify(entry) is None
            cache.remove(entry)
    monkeypatch.setenv("FAKE_SECONDS", "0")
    assert made(small, runtime).size_bytes > 0
    assert names(small) == {".sif", ".json", ".log", ".lock"}


FAILURES = [
    ("E: Unable to locate package no-such-thing", "the Debian package no-such-thing does not exist"),
    ("E: Version '9' for 'libnccl2' was not found", "the Debian package libnccl2 has no version 9"),
    ("ERROR: Could not find a version that satisfies the requirement torch==99 (from versions: none)\n"
     "ERROR: No matching distribution found for torch==99", "the Python package torch==99 cannot be had"),
    ("FATAL:   While performing build: conveyor failed to get: reading manifest x in docker.io/a: manifest unknown",
     "the base image does not exist in its registry"),
    ("E: No such script: /usr/share/debootstrap/scripts/bookwrm", "debootstrap does not know the suite bookwrm"),
    ("E: Failed getting release file http://deb/dists/x/Release", "the base's package mirror has no such suite"),
    ("FATAL: tar: x: Cannot write: No space left on device\nE: Unable to locate package a", "the disk is full"),
    ("Fatal error: Disk quota exceeded", "the disk is full"),
    ("curl: (6) Could not resolve host: download.open-mpi.org", "download.open-mpi.org cannot be reached"),
    ("FATAL: dial tcp: lookup registry-1.docker.io: no such host", "registry-1.docker.io: cannot be reached"),
    ("FATAL: could not use fakeroot: no mapping entry found in /etc/subuid for me", "--fakeroot needs an entry"),
    ("FATAL: You must be the root user, however you can use --fakeroot", "this runtime builds as root only"),
    ("ERROR: Failed to create user namespace: disabled", "gives users no user namespaces"),
    ("torusrun: offline, and neither the base nor the wheelhouse has: git", "has: git"),
    ("torch has no kernels for sm_70", "torch has no kernels for sm_70; take a PyTorch built for it"),
    ("/tmp/a: FAILED\nsha256sum: WARNING: 1 computed checksum did NOT match", "not the one that 'mpi.sha256' names"),
    ("Error for command \"build\": unknown flag: --mksquashfs-args", "too old for --mksquashfs-args"),
    ("INFO: a\nFATAL: something new happened\nUsage: x", "exit code 255: FATAL: something new happened"),
    ("+ apt-get update\n/.post.script: line 3: apt-get: not found\n"
     "FATAL:   While performing build: while running engine: while running %post section: exit status 127",
     "exit code 255: %post: /.post.script: line 3: apt-get: not found"),
    ("", "exit code 255: INFO:    Starting build..."),
]  # fmt: skip


@pytest.mark.parametrize(("said", "says"), FAILURES, ids=[f[1][:40] for f in FAILURES])
def test_a_failed_build_is_one_line_with_the_logs_place(
    said: str, says: str, small: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILURE", said)
    with pytest.raises(BuildFailed) as caught:
        made(small, runtime) if said else made(small, failing_silently(runtime))
    message = str(caught.value)
    assert says in message and len(message.splitlines()) == 1
    log = Path(message.rpartition("(log: ")[2].rstrip(")"))
    assert said in log.read_text() and names(small) == {".log", ".lock"}
    monkeypatch.delenv("FAKE_FAILURE")
    assert made(small, runtime).size_bytes > 0, "the next build must go on"


def failing_silently(runtime: Runtime) -> Runtime:
    Path(runtime.command).with_name("silent").write_text("#!/bin/sh\necho 'INFO:    Starting build...'; exit 255\n")
    Path(runtime.command).with_name("silent").chmod(0o755)
    return Runtime(str(Path(runtime.command).with_name("silent")), runtime.product, runtime.version)


def test_a_killed_runtime_is_named() -> None:
    assert complaints.explain("INFO: unpacking", -9) == "the build was killed by SIGKILL; start it again"


def test_no_image_is_no_success(small: Path, tmp_path: Path) -> None:
    liar = tmp_path / "liar"
    liar.write_text("#!/bin/sh\nexit 0\n")
    liar.chmod(0o755)
    with pytest.raises(BuildFailed, match="was not built"):
        made(small, Runtime(str(liar), "apptainer", (1, 4)))


def test_a_missing_runtime_harms_nothing(small: Path) -> None:
    with pytest.raises(SiteError, match="cannot be started"):
        made(small, Runtime("/no/such/apptainer", "apptainer", (1, 4)))
    assert names(small) <= {".log", ".lock"}


def test_an_interrupted_build_ends_what_it_started(
    small: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "60")

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        made(small, runtime, progress=interrupt)
    assert time.monotonic() - started < 20 and names(small) == {".log", ".lock"}


def test_the_temporary_folder_is_used_and_emptied(small: Path, runtime: Runtime, tmp_path: Path) -> None:
    local = tmp_path / "local"
    name, inputs = prepare(small, Variant(), Options())
    (local / f"torusrun-{inputs.key[:12]}-1" / "rootfs").mkdir(parents=True)
    made(small, runtime, Options(temporary=local))
    assert list(local.iterdir()) == []


def test_the_words_of_a_build() -> None:
    image, new = Path("/c/x.sif"), Runtime("apptainer", "apptainer", (1, 4))
    options = Options(compression="lz4", wheelhouse=Path("/my wheels"))
    assert command(new, options, image, "image.def") == [
        "apptainer", "build", "--fakeroot", "--bind", "/my wheels:/mnt", "--mksquashfs-args", "-comp lz4",
        "/c/x.sif", "image.def",
    ]  # fmt: skip
    for old, options in (
        (Runtime("singularity", "singularity", (2, 6, 1)), Options()),
        (Runtime("singularity", "singularity", (3, 8, 7)), Options(compression="zstd")),
    ):
        with pytest.raises(SiteError):
            command(old, options, image, "image.def")


@pytest.mark.parametrize(
    ("options", "variant", "says"),
    [
        (Options(wheelhouse=Path("/no/wheels")), Variant(), "the wheelhouse is no folder"),
        (Options(), Variant(offline=True), "takes its Python packages from a wheelhouse"),
    ],
)
def test_what_cannot_be_built_is_said_first(small: Path, options: Options, variant: Variant, says: str) -> None:
    small.write_text(small.read_text() + "python: {packages: [torch==2.13.0]}\n")
    with pytest.raises(UserError, match=says):
        prepare(small, variant, options)


def test_a_full_disk_is_one_line(small: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Callable[..., None]:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("orchestrator.containers.inputs.Inputs.lay_out", full)
    with pytest.raises(BuildFailed, match="No space left on device"):
        made(small, runtime)
