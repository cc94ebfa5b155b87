"""Hosts and images asked: by their own programs, by the header of a file, by the file system below it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torusrun.orchestrator.images import sif
from torusrun.orchestrator.images.checks import facts, image_facts, probe
from torusrun.orchestrator.images.checks.answers import parse_probe, parse_questions
from torusrun.orchestrator.images.checks.facts import ImageFacts
from torusrun.orchestrator.images.checks.image_facts import complaint, not_started
from torusrun.orchestrator.images.shared import file_system, is_shared, kind_of, seen_by_others

# The beginning of a SIF that Apptainer 1.4.5 built on x86_64.
HEADER = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\x0002\0"

# /proc/self/mountinfo of a login node, put together from lines as they are in proc(5) and on machines of this kind.
MOUNTS = """27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684084k
40 27 0:40 / /home rw,relatime shared:20 - nfs4 server:/home rw,vers=4.2
41 27 0:41 / /scratch rw,relatime - lustre 10.0.0.1@o2ib:/scratch rw
42 27 0:42 / /data rw,relatime - xfs /dev/sdb rw
43 27 0:43 / /odd\\040name rw,relatime - fuse.unheard server rw
"""


@pytest.mark.parametrize(
    ("path", "runs", "shared", "own"),
    [
        ("/home/me/x.sif", "/home/me/runs", True, ""),
        ("/scratch/x.sif", "/home/me/runs", True, ""),
        ("/tmp/x.sif", "/home/me/runs", False, "/tmp"),
        ("/var/tmp/x.sif", "/home/me/runs", False, "/var/tmp"),
        ("/dev/shm/x.sif", "/home/me/runs", False, "/dev/shm"),
        ("/tmp/x.sif", "/tmp/runs", True, ""),  # the site says that all nodes see this one
        ("/data/x.sif", "/home/me/runs", False, ""),
        ("/data/x.sif", "/data/runs", True, ""),  # a head node that exports its own disk
        ("/odd name/x.sif", "/home/me/runs", None, ""),
    ],
)
def test_whether_the_nodes_see_a_file(path: str, runs: str, shared: bool | None, own: str) -> None:
    found, folder, seen = is_shared(Path(path), Path(runs), MOUNTS)
    assert (found, folder) == (shared, own) and path in seen


def test_a_file_system_is_that_of_the_longest_mount() -> None:
    assert file_system(Path("/odd name/x"), MOUNTS) == ("/odd name", "fuse.unheard")
    assert file_system(Path("/homes/x"), MOUNTS) == ("/", "ext4")
    assert file_system(Path("/x"), "no mounts at all\n") == ("", "")
    assert file_system(Path("/"), Path("/proc/self/mountinfo").read_text())[0] == "/"


@pytest.mark.parametrize(("kind", "shared"), [("nfs4", True), ("lustre", True), ("ext4", False), ("fuseblk", None)])
def test_whether_other_machines_see_a_file_system(kind: str, shared: bool | None) -> None:
    assert seen_by_others(kind) is shared


def test_the_file_system_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert kind_of(tmp_path / "a" / "b") == kind_of(tmp_path) != ""


@pytest.mark.parametrize(("code", "machine"), [(b"02", "x86_64"), (b"04", "aarch64"), (b"99", None)])
def test_a_sif_says_its_processor_without_being_started(tmp_path: Path, code: bytes, machine: str | None) -> None:
    path = tmp_path / "x.sif"
    path.write_bytes(HEADER.replace(b"02\0", code + b"\0") + bytes(100))
    found, read = sif.machine(path)
    assert found == machine and code.decode() in read
    path.write_bytes(b"")
    assert sif.machine(path)[0] is None


def test_a_program_says_its_processor() -> None:
    assert sif.of_program(Path(sys.executable)) == os.uname().machine
    assert sif.of_program(Path(__file__)) is None


def test_a_host_is_asked_without_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USER", raising=False)
    found = facts.host(None, "srun", ["/", "/no/such/path"])
    assert found.missing_paths == ("/no/such/path",)
    assert "`srun --mpi=list`: " in found.evidence("slurm_pmi")
    assert found.evidence("mpi") == "not looked at"


def test_an_image_is_examined_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "x.sif"
    missing = image_facts.image(path)
    assert not missing.readable and missing.evidence("file").endswith("No such file or directory")
    path.write_bytes(HEADER)
    found = image_facts.image(path)
    assert found.readable and found.machine == "x86_64" and found.starts is None
    os.mkfifo(tmp_path / "fifo.sif")
    assert image_facts.image(tmp_path / "fifo.sif").evidence("file").endswith("this is not a regular file")


def test_the_probe_answers_a_plain_python() -> None:
    argv = [sys.executable, "-S", probe.__file__]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=300, cwd="/", env={"PATH": "/bin"})
    found = parse_probe(told.stdout)
    assert found["python"] and found["training"] is False and "torch" in found["torch_error"]


def test_the_questions_are_answered_by_a_plain_shell(tmp_path: Path) -> None:
    """By this machine's, with nothing on PATH that it asks for but what every system has."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libmpi.so.40").write_bytes(Path(os.path.realpath("/bin/sh")).read_bytes())
    script = image_facts.script("ls", [str(tmp_path), "/no such folder"])
    told = subprocess.run(script, capture_output=True, text=True, timeout=300, cwd="/", env={"PATH": "/usr/bin:/bin"})
    answers = parse_questions(told.stdout)
    assert answers["glibc"][1] == 0 and answers["program"][0].splitlines()[0].endswith("/ls")
    assert answers[f"bound {tmp_path}"][0].startswith(f"{tmp_path}/lib/libmpi.so.40\n")
    assert answers["bound /no such folder"] == ("", 127)
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    (tmp_path / "text").touch()
    environment = {"PATH": "/usr/bin:/bin", "BASH_ENV": "", "ENV": ""}
    for program, found in (("./mine", f"{tmp_path}/./mine"), ("/bin/sh", "/bin/sh"), ("test", "/usr/bin/test"),
                           ("./text", ""), (".", ""), ("export", "")):  # fmt: skip
        told = subprocess.run(
            image_facts.script(program, []), capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment
        )
        answer, code = parse_questions(told.stdout)["program"]
        assert (answer.partition("\n")[0], code == 127) == (found, not found), program
    hostile = image_facts.script("$(touch pwned); x", [])
    told = subprocess.run(hostile, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert parse_questions(told.stdout)["program"][1] == 127 and not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("said", "starts"),
    [
        (
            "container creation failed: image driver mount failure: image driver squashfuse_ll instance exited with "
            "error: squashfuse_ll exited: Something went wrong trying to read the squashfs image.",
            False,
        ),
        ("Requesting capability set 0x000001ffffffffff while permitted capability set is 0x000001fffeffffff", None),
        ("apptainer did not answer within 60 s; was running: apptainer exec x.sif", None),
    ],
    ids=["a truncated file", "a machine that allows too little", "a machine that is too slow"],
)
def test_whose_fault_it_is_that_nothing_starts(said: str, starts: bool | None) -> None:
    """As Apptainer 1.4.5 says it, and this program of it."""
    known = not_started(ImageFacts("/x.sif"), said)
    assert (
        known.starts is starts
        and said in known.evidence("start")
        and known.evidence("torch") == known.evidence("start")
    )


def test_a_complaint_is_the_line_that_says_it() -> None:
    """As Apptainer 1.4.5 prints it."""
    told = (
        "\x1b[91mERROR  : Requesting capability set 0x000001ffffffffff while permitted capability set is "
        "0x000001fffeffffff\n\x1b[0m"
    )
    assert complaint(told).startswith("Requesting capability set") and "\x1b" not in complaint(told)
    assert complaint("") == "it printed nothing"
