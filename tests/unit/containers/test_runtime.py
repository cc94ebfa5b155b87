"""What a site asks of its runtime: the words that say it, and one message where the version lacks them."""

from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.checks.answers import runs_on
from torusrun.orchestrator.images.command import inside
from torusrun.orchestrator.images.runtime import SINCE, Runtime
from torusrun.orchestrator.run.image import checking, run_image
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan.plan import Plan, plan

NEW = Runtime("apptainer", "apptainer", (1, 4, 5))
CE = Runtime("singularity", "singularity-ce", (4, 3, 3))
OLD = Runtime("singularity", "singularity", (3, 4, 2))
COMMAND = "command: [hello]\ncode: none"
IMAGE = Image("/c/x.sif", "0" * 64, "x")


def planned(folder: Path, node: str, container: str, run: str = COMMAND) -> Plan:
    (folder / "site.yaml").write_text(f"scheduler: local\nlauncher: spawn\nnode: {node}\ncontainer: {container}\n")
    (folder / "x.sif").write_bytes(b"an image")
    (folder / "run.yaml").write_text(f"name: x\nsite: ./site.yaml\nimage: x.sif\n{run}\n")
    return plan(folder / "run.yaml")


@pytest.mark.parametrize(
    ("node", "container", "run", "words"),
    [
        ("{gpus: 4}", "{}", COMMAND, ["--nv"]),
        ("{gpus: 4, architecture: sm_90}", "{gpu: nvccli}", COMMAND, ["--nvccli"]),
        ("{gpus: 4, architecture: gfx90a}", "{}", COMMAND, ["--rocm"]),
        ("{gpus: 4}", "{gpu: none}", COMMAND, []),
        ("{}", "{gpu: rocm}", COMMAND, []),
        ("{gpus: 4}", "{}", "train: {device: cpu}", []),
        ("{}", "{writable: tmpfs}", COMMAND, ["--writable-tmpfs"]),
    ],
)
def test_the_words_for_gpus_and_for_writing(
    tmp_path: Path, node: str, container: str, run: str, words: list[str]
) -> None:
    made = run_image.container(planned(tmp_path, node, container, run), IMAGE, NEW)
    argv = list(inside(made, ["hello"], {}, {}).argv)
    assert argv[1 : 5 + len(words)] == ["--quiet", "exec", "--cleanenv", "--no-eval", *words]
    assert not {"--nv", "--nvccli", "--rocm", "--writable-tmpfs"} & set(argv) - set(words)


@pytest.mark.parametrize(
    ("runtime", "container", "says"),
    [
        (OLD, "{gpu: rocm}", "singularity 3.4.2 has no --rocm, Singularity has it from 3.5 on"),
        (OLD, "{gpu: nvccli}", "has no --nvccli, Singularity has it from 3.9 on"),
        (Runtime("s", "singularity", (2, 6, 1)), "{writable: tmpfs}", "has no --writable-tmpfs"),
    ],
)
def test_a_version_that_lacks_an_option_is_reported_before_the_queue(
    tmp_path: Path, runtime: Runtime, container: str, says: str
) -> None:
    """Through the command itself, which says its version as the real one does."""
    command = tmp_path / "singularity"
    version = ".".join(map(str, runtime.version))
    command.write_text(f"#!/bin/sh\necho singularity version {version}\n")
    command.chmod(0o755)
    wanted = f"{{runtime: {command}, {container[1:]}"
    with pytest.raises(UserError, match=says):
        checking.fitting(planned(tmp_path, "{gpus: 4}", wanted))


def test_products_differ_in_what_they_have() -> None:
    assert all(NEW.has(word) and CE.has(word) for word in SINCE)
    assert OLD.lacks("--rocm") == "singularity 3.4.2 has no --rocm, Singularity has it from 3.5 on"


def test_code_for_one_amd_gpu_runs_on_no_other() -> None:
    assert runs_on(("gfx90a", "gfx942"), "gfx90a") and not runs_on(("gfx908", "sm_90"), "gfx90a")
