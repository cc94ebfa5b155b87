"""`torusrun plan --check` and `submit` on a login node that has no runtime, and before an image is built."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.unit.containers.test_cache import entry
from tests.unit.containers.test_facts import HEADER
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.images.builds.cache import Cache
from torusrun.orchestrator.run.image import checking
from torusrun.orchestrator.run.plan.plan import plan

SITE = "scheduler: slurm\nlauncher: mpirun\nnode: {gpus: 4, architecture: sm_70, hcas: [mlx5_0]}\nruns: %s\n"


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run, its site and an image, on a machine without a runtime and for a user without a name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("USER", raising=False)
    (tmp_path / "site.yaml").write_text(SITE % (tmp_path / "runs"))
    (tmp_path / "run.yaml").write_text("name: x\nsite: ./site.yaml\nimage: ./x.sif\ntrain: {}\n")
    (tmp_path / "x.sif").write_bytes(HEADER + bytes(100))
    return tmp_path


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    """(the exit code, the findings by their kind) of `plan --check --json`."""
    code = main(["plan", "run.yaml", "--check", "--json", *words])
    said = json.loads(capsys.readouterr().out)["check"]
    assert said["schema"] == 2
    return code, {finding["kind"]: finding for finding in said["findings"]}


def test_without_a_runtime_what_is_inside_is_not_known_and_nothing_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = checked(capsys)
    assert code == 0 and not any(finding["severity"] == "error" for finding in found.values())
    unseen = {kind for kind, finding in found.items() if finding["outcome"] == "could not be looked at"}
    assert {"runtime-missing", "python-old", "torch-without-cuda", "verbs-missing"} <= unseen
    assert found["runtime-missing"]["evidence"] == "apptainer and singularity looked for on PATH: not found"
    assert found["image-architecture"]["outcome"] == "fits" and found["image-not-shared"]["outcome"] == "fits"
    assert found["python-old"]["evidence"] == found["runtime-missing"]["evidence"]
    assert all(finding["evidence"] for finding in found.values())


def test_the_text_counts_every_outcome(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "x.sif").write_bytes(HEADER.replace(b"02\0", b"04\0"))
    assert main(["plan", "run.yaml", "--check"]) == 2
    said = capsys.readouterr().out.rpartition("\n\n")[2].splitlines()
    assert said[0].startswith("error: the image is for aarch64, and the nodes' Python for ")
    assert "names the architecture 04 (aarch64)" in said[1] and said[1].startswith("    ")
    assert said[-1].startswith(f"{project}/x.sif: 1 do not fit, 0 warn, ") and "could not be looked at" in said[-1]


def test_submit_names_what_it_could_not_check(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = checking.fitting(plan("run.yaml"))
    assert image and image.path == str(project / "x.sif")
    assert "things could not be looked at; `torusrun plan --check` names them" in capsys.readouterr().err


def test_a_cpu_training_on_a_site_with_gpus_is_no_mismatch(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = checked(capsys, "--set", "train.device=cpu")
    assert "torch-without-cuda" not in found and found["verbs-missing"]["outcome"] == "fits"


def test_an_image_that_is_not_built_cannot_be_checked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "run.yaml", "--check", "--set", "image=pytorch-hopper"]) == 2
    assert "is not built for this site yet: `torusrun image build pytorch-hopper " in capsys.readouterr().err


def test_an_image_that_cannot_be_read_is_a_finding(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(project / "fifo.sif")
    code, found = checked(capsys, "--set", "image=./fifo.sif")
    said = f"{project}/fifo.sif: the image cannot be read: this is not a regular file"
    assert code == 2 and found["image-unreadable"]["what"] == said and len(found) == 1


def test_an_image_of_the_cache_that_is_named_by_its_path_must_be_as_it_was_built(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = entry(Cache(project / "images"), content=HEADER + bytes(100))
    (project / "linked.sif").symlink_to(built.path)
    (project / "copied").mkdir()
    copied = project / "copied" / built.path.name
    for name in (built.path, built.path.with_suffix(".json")):
        shutil.copy(name, project / "copied")
    for named in (built.path, copied, project / "linked.sif"):
        code, found = checked(capsys, "--set", f"image={named}")
        assert code == 0 and found["image-unreadable"]["outcome"] == "fits", "an unchanged image is looked into"
    for path in (built.path, copied):
        path.write_bytes(HEADER + bytes(99) + b"1")
    for named in (built.path, copied, project / "linked.sif"):
        code, found = checked(capsys, "--set", f"image={named}")
        assert code == 2 and f"{named}: its SHA-256 is " in found["image-broken"]["what"] and len(found) == 1
        assert main(["submit", "run.yaml", "--set", f"image={named}", "--dry-run"]) == 2
        assert "; build it again, or copy it again from where it came" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("image", "shown"),
    [
        ("./x.sif", "FOLDER/x.sif\n"),
        ("pytorch-cpu", "pytorch-cpu, not ready for this site: `torusrun image build pytorch-cpu "),
    ],
)
def test_plan_shows_the_image_and_whether_it_is_ready(
    image: str, shown: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "run.yaml", "--set", f"image={image}"]) == 0
    assert f"\nimage       {shown.replace('FOLDER', str(project))}" in capsys.readouterr().out
