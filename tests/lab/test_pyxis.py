"""Runs in containers of Pyxis and enroot, on the Slurm lab. They are in no registry: see slurm/pyxis.py."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.lab_places import Slurm
from tests.e2e.places import ROOT, assert_same_bits

from .slurm import SlurmLab, pyxis

pytestmark = pytest.mark.skipif(bool(pyxis.why_not_here()), reason=pyxis.why_not_here())
TWO = ["--set", "nodes=2", "--set", "grid=2x2", "--set", "train.epochs=2"]


@pytest.fixture(scope="module")
def folder() -> Path:
    found = pyxis.folder()
    assert found
    return found


@pytest.fixture(scope="module")
def place(slurm_lab: SlurmLab, folder: Path) -> Iterator[Slurm]:
    slurm_lab.add_to_path(folder / "bin")
    yield Slurm(slurm_lab)


@pytest.fixture(scope="module")
def site(place: Slurm) -> str:
    return _site(place, "pyxis.yaml")


def _site(place: Slurm, name: str, more: str = "") -> str:
    lines = [line for line in place.lab.site_file.read_text().splitlines() if not line.startswith("  gpus")]
    container = f"container: {{runtime: pyxis, cache: {place.folder}/images{more}}}"
    (place.folder / name).write_text("\n".join([*lines, container, ""]))
    return f"./{name}"


def test_digits_in_a_squashfs_end_in_the_bits_of_a_run_without_one(place: Slurm, site: str, folder: Path) -> None:
    place.put("digits.yaml", (ROOT / "examples" / "digits.yaml").read_text())
    runs = []
    for image in ([], ["--set", f"image={folder}/images/torch.sqsh"]):
        said = place.torusrun("submit", "digits.yaml", "--site", site, *TWO, *image, "--wait", timeout_s=400)
        assert said.returncode == 0, said.stdout + said.stderr + place.torusrun("logs", "last", "--all").stdout[-3000:]
        runs.append(Path(place.view(said.stdout.split()[0])["folder"]))
    assert_same_bits(runs[1], runs[0])
    kept = json.loads((runs[1] / "image.json").read_text())
    assert kept["path"] == f"{folder}/images/torch.sqsh" and len(kept["sha256"]) == 64


def test_a_command_sees_what_the_run_names_and_nothing_else(place: Slurm, folder: Path) -> None:
    (place.folder / "shared data").mkdir(exist_ok=True)
    site = _site(place, "bound.yaml", f", bind: ['{place.folder}/shared data:/data of all:ro']")
    script = (
        "echo [$RANK/$WORLD_SIZE] [$GREETING] [$OTHER] $(ls -d '/data of all'); touch '/data of all/x' 2>&1; "
        "touch /x 2>&1; touch mine && id -un; exit $RANK"
    )
    text = (
        f"name: seen\nsite: {site}\nnodes: 2\nimage: {folder}/images/torch.sqsh\ncode: none\n"
        f"env: {{GREETING: 'it is \"$HOME\", isn''t it, 1:2'}}\ncommand: [sh, -c, {json.dumps(script)}]\n"
    )
    place.put("seen.yaml", text)
    said = place.lab.run_as_user(
        place._argv(["python", "-m", "torusrun", "submit", "seen.yaml", "--wait"]),
        timeout_s=240,
        cwd=place.folder,
        env={"OTHER": "leaks"},
    )
    logs = place.torusrun("logs", "last", "--all").stdout
    assert said.returncode != 0 and "exit code" in said.stderr, said.stderr
    for rank in range(4):
        assert f'[{rank}/4] [it is "$HOME", isn\'t it, 1:2] [] /data of all' in logs, logs
    assert logs.count("Read-only file system") == 8 and place.lab.settings.user in logs, logs
