"""The checks: a good set passes, and every planted mismatch is found by its kind and no other."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli import main
from orchestrator.containers import compat, facts, probe
from orchestrator.containers.answers import MpiLibrary, parse_probe
from orchestrator.containers.check import Wanted, check, refused
from orchestrator.containers.facts import HostFacts, ImageFacts
from orchestrator.containers.findings import KINDS
from orchestrator.containers.image_file import Base, ImageFile
from orchestrator.containers.runtime import Runtime

NEW = Runtime("apptainer", "apptainer", (1, 4, 5))
WANTED = Wanted(mpi=True, builds=True, sha256="1" * 64)
HOST = HostFacts(NEW, MpiLibrary("openmpi", "4.1.4", 4), frozenset({3, 4}), "535.104.05", ("sm_70",), "2.36")
IMAGE = ImageFacts(
    "/shared/x.sif", sha256="1" * 64, python="3.11.2", glibc="2.36", torch="2.13.0+cu126", cuda="12.6",
    architectures=("sm_50", "sm_60", "sm_70", "sm_90"), mpi=MpiLibrary("openmpi", "4.1.6", 3), training=True,
)  # fmt: skip
DIGEST = "sha256:" + "0" * 64
IMAGE_FILE = ImageFile("mine", Base(docker="debian", digest=DIGEST))
OLD = Runtime("s", "singularity", (2, 4))
HOSTLESS = replace(HOST, gpus=())
BROKEN = replace(IMAGE, torch=None, cuda=None, torch_error="libcublas.so.12: cannot open")
HOPPER = ("sm_75", "sm_80", "sm_90", "compute_90")

PLANTED: list[tuple[str, Wanted, HostFacts, ImageFacts, ImageFile]] = [
    ("runtime-missing", WANTED, replace(HOST, runtime=None), IMAGE, IMAGE_FILE),
    ("runtime-old", replace(WANTED, builds=False), replace(HOST, runtime=OLD), IMAGE, IMAGE_FILE),
    ("no-fakeroot", WANTED, replace(HOST, fakeroot=False), IMAGE, IMAGE_FILE),
    ("no-fakeroot", WANTED, replace(HOST, runtime=Runtime("s", "singularity", (2, 6, 1))), IMAGE, IMAGE_FILE),
    ("no-user-namespaces", WANTED, replace(HOST, user_namespaces=False), IMAGE, IMAGE_FILE),
    ("bind-missing", WANTED, replace(HOST, missing_paths=("/opt/hpcx",)), IMAGE, IMAGE_FILE),
    ("base-without-digest", WANTED, HOST, IMAGE, replace(IMAGE_FILE, base=Base(docker="debian"))),
    (
        "image-unreadable",
        WANTED,
        HOST,
        replace(IMAGE, readable=False, unreadable_because="Permission denied"),
        IMAGE_FILE,
    ),
    ("image-not-shared", WANTED, HOST, replace(IMAGE, shared=False), IMAGE_FILE),
    ("digest-changed", WANTED, HOST, replace(IMAGE, sha256="2" * 64), IMAGE_FILE),
    ("driver-old", WANTED, replace(HOST, driver="470.57.02"), IMAGE, IMAGE_FILE),
    ("driver-old", replace(WANTED, driver="510.47.03"), replace(HOST, driver=None), IMAGE, IMAGE_FILE),
    ("torch-without-cuda", WANTED, HOST, replace(IMAGE, torch="2.13.0+cpu", cuda=None, architectures=()), IMAGE_FILE),
    ("gpu-architecture", WANTED, HOST, replace(IMAGE, architectures=HOPPER), IMAGE_FILE),
    ("gpu-architecture", replace(WANTED, gpus=("sm_70",)), HOSTLESS, replace(IMAGE, architectures=HOPPER), IMAGE_FILE),
    ("mpi-missing", WANTED, HOST, replace(IMAGE, mpi=None), IMAGE_FILE),
    ("mpi-family", WANTED, replace(HOST, mpi=MpiLibrary("intel", "2021.13")), IMAGE, IMAGE_FILE),
    ("mpi-major", WANTED, replace(HOST, mpi=MpiLibrary("openmpi", "5.0.3", 4)), IMAGE, IMAGE_FILE),
    (
        "pmix",
        WANTED,
        replace(HOST, pmix_served=frozenset({4})),
        replace(IMAGE, mpi=MpiLibrary("openmpi", "4.0.0", 2)),
        IMAGE_FILE,
    ),
    ("pmix", WANTED, HOST, replace(IMAGE, mpi=MpiLibrary("openmpi", "4.0.0", 1)), IMAGE_FILE),
    ("glibc-old", replace(WANTED, host_mpi=True), HOST, replace(IMAGE, glibc="2.31"), IMAGE_FILE),
    ("torch-broken", WANTED, HOST, BROKEN, IMAGE_FILE),
    ("training-missing", WANTED, HOST, replace(IMAGE, training=False), IMAGE_FILE),
]  # fmt: skip


def test_a_good_set_passes() -> None:
    assert check(WANTED, HOST, IMAGE, IMAGE_FILE) == []


@pytest.mark.parametrize("planted", PLANTED, ids=[f"{i}-{p[0]}" for i, p in enumerate(PLANTED)])
def test_a_planted_mismatch_is_found(planted: tuple[str, Wanted, HostFacts, ImageFacts, ImageFile]) -> None:
    kind, wanted, host, image, image_file = planted
    (finding,) = check(wanted, host, image, image_file)
    assert finding.kind == kind
    assert len(str(finding).splitlines()) == 1 and finding.why in str(finding) and finding.mend in str(finding)


def test_every_kind_is_planted_and_they_are_enough() -> None:
    assert {p[0] for p in PLANTED} == set(KINDS) and len(KINDS) >= 12


def test_a_missing_digest_warns_and_the_rest_refuses() -> None:
    assert not refused(check(WANTED, HOST, IMAGE, replace(IMAGE_FILE, base=Base(docker="debian"))))
    assert refused(check(WANTED, replace(HOST, runtime=None), IMAGE, IMAGE_FILE))


def test_mpi_only_warns_where_the_program_does_not_use_it() -> None:
    findings = check(replace(WANTED, mpi=False), replace(HOST, mpi=MpiLibrary("intel", "2021.13")), IMAGE, IMAGE_FILE)
    assert [(f.kind, f.severity) for f in findings] == [("mpi-family", "warning")]


def test_what_is_not_known_is_no_finding() -> None:
    assert check(WANTED, HostFacts(NEW), ImageFacts("/x.sif", mpi=MpiLibrary("openmpi", "4.1.4"))) == []
    assert check(WANTED, HostFacts(NEW), None) == []


@pytest.mark.parametrize(
    ("architectures", "gpu", "runs"),
    [
        (("sm_70",), "sm_70", True),
        (("sm_80",), "sm_86", True),  # a cubin runs on later minors of its major
        (("sm_86",), "sm_80", False),
        (("sm_70",), "sm_80", False),
        (("compute_70",), "sm_90", True),  # PTX is compiled for what came later
        (("compute_80",), "sm_70", False),
        (("sm_90a",), "sm_90", False),
        (("sm_50", "sm_60"), "sm_61", True),
        (("sm_75", "sm_80", "sm_100"), "sm_70", False),
    ],
)
def test_kernels_and_gpus(architectures: tuple[str, ...], gpu: str, runs: bool) -> None:
    assert compat.runs_on(architectures, gpu) == runs


def test_drivers() -> None:
    floor = {
        text: compat.oldest_driver(compat.version(text)) for text in ("8.0", "9.0", "10.1", "11.8", "12.6", "14.0")
    }
    assert floor == {
        "8.0": None, "9.0": (384, 81), "10.1": (418, 39), "11.8": (450, 80, 2), "12.6": (525, 60, 13), "14.0": None,
    }  # fmt: skip


def test_a_host_is_asked_without_harm() -> None:
    found = facts.host(None, "srun", ["/", "/no/such/path"])
    assert found.missing_paths == ("/no/such/path",) and found.glibc


def test_an_image_is_asked_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "x.sif"
    missing = facts.image(path, None)
    assert not missing.readable and missing.unreadable_because == "No such file or directory"
    path.write_bytes(b"x")
    found = facts.image(path, None, shared=[str(tmp_path)], with_checksum=True)
    assert found.readable and found.shared and found.sha256 and len(found.sha256) == 64
    os.mkfifo(tmp_path / "fifo.sif")
    assert facts.image(tmp_path / "fifo.sif", None).unreadable_because == "this is no regular file"
    assert not facts.image(path, None, shared=["/shared"]).shared


def test_the_probe_answers_a_plain_python() -> None:
    argv = [sys.executable, "-S", probe.__file__]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd="/", env={"PATH": "/bin"})
    found = parse_probe(said.stdout)
    assert found["python"] and found["training"] is False and "torch" in found["torch_error"]


def test_check_before_an_image_is_built_looks_at_its_image_file(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.yaml").write_text("name: x\nsite: local\nimage: pytorch-hopper\n")
    code = main(["check", str(tmp_path / "run.yaml"), "--json"])
    said = json.loads(capsys.readouterr().out)
    kinds = {finding["kind"]: finding["severity"] for finding in said["findings"]}
    assert kinds["base-without-digest"] == "warning"
    assert code == (2 if "error" in kinds.values() else 0) and said["image"] is None
