"""What a build says: its words to the runtime, and a failure's log in one line. Builds themselves: tests/lab."""

from pathlib import Path

import pytest

from orchestrator import images
from orchestrator.containers import complaints
from orchestrator.containers.build import Options, build, command, prepare
from orchestrator.containers.cache import Cache
from orchestrator.containers.definition import Variant
from orchestrator.containers.runtime import Runtime
from orchestrator.errors import SiteError, UserError

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
    ("FATAL: packer failed to pack: copy Failed: write /c/busybox: no space left on device",
     "the disk is full"),
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
def test_a_failed_build_is_explained_in_one_line(said: str, says: str) -> None:
    log = said or "INFO:    Starting build..."
    message = complaints.explain(log, 255)
    assert says in message and len(message.splitlines()) == 1


def test_a_killed_runtime_is_named() -> None:
    assert complaints.explain("INFO: unpacking", -9) == "the build was killed by SIGKILL; start it again"


def test_a_missing_runtime_harms_nothing(small: Path, tmp_path: Path) -> None:
    name, inputs = prepare(small, Variant(), Options())
    missing = Runtime("/no/such/apptainer", "apptainer", (1, 4))
    with pytest.raises(SiteError, match="cannot be started"):
        build(name, inputs, Cache(tmp_path / "images"), lambda: missing, Options())
    assert {path.suffix for path in (tmp_path / "images").iterdir()} <= {".log", ".lock"}


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


def test_the_temporary_folder_is_the_one_of_the_job_that_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE_OF_THE_JOB", "/local/12")
    assert images._here(Path("$PLACE_OF_THE_JOB/build")) == Path("/local/12/build")
    monkeypatch.delenv("PLACE_OF_THE_JOB")
    with pytest.raises(UserError, match="a variable that is not set here: build in a job"):
        images._here(Path("$PLACE_OF_THE_JOB"))
