"""docs/guides/images.md, "Common tasks", and ngc.md: writes their files and types their commands, on a cluster."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.places import ROOT, Said

from . import archives, brought, ngc
from .image_builder import Builder

PAGE = (ROOT / "docs" / "guides" / "images.md").read_text()
SECTION = PAGE.partition("\n## Common tasks\n")[2].partition("\n## ")[0]
PARTS = r"^### (.*?)\n(.*?)(?=^##|\Z)"
NEEDS = dict(re.findall(PARTS, SECTION, re.MULTILINE | re.DOTALL))
NGC = dict(re.findall(PARTS, (ROOT / "docs" / "guides" / "ngc.md").read_text(), re.MULTILINE | re.DOTALL))
QUICK = ("--mksquashfs-args", "-comp zstd -Xcompression-level 3")  # gzip takes minutes on a busy machine
PREAMBLE = 'set -e\ntorusrun() { python -m torusrun "$@"; }\n'


class User:
    """A user with a folder of images, packages and runs, and two sites."""

    def __init__(self, builder: Builder, name: str) -> None:
        self.builder = builder
        self.folder = builder.home / name
        self.folder.mkdir()
        shutil.chown(self.folder, builder.place.lab.settings.user)
        sites = builder.place.lab.home / ".config" / "torusrun" / "sites"
        sites.mkdir(parents=True, exist_ok=True)
        for name, container in (("cluster", ""), ("writable", ", writable: tmpfs, args: [--fakeroot]")):
            shutil.copyfile(builder.home / builder.site(f"{name}.yaml", container), sites / f"{name}.yaml")

    def bring(self, image: Path) -> None:
        """Make the things that the page presumes: small ones, except the image with PyTorch."""
        lab, tiny = self.builder.place.lab, self.builder.apptainer.tiny
        for name, root in (("ready", tiny), ("python", self.builder.apptainer.debian)):
            target = str(self.folder / f"{name}.sif")
            lab.run_as_user(["apptainer", "build", *QUICK, target, str(root)], timeout_s=240, check=True)
        (self.folder / "torch.sif").symlink_to(image)
        archives.write_docker(self.folder / "theirs.tar", [tiny], ["PATH=/bin"])
        digits = (ROOT / "examples" / "digits.yaml").read_text()
        (self.folder / "digits.yaml").write_text(digits.replace("epochs: 20", "epochs: 2"))
        brought.wheel(self.folder / "images", "needs_torch", "1.0", ["torch"])
        (self.folder / "images" / "requirements.txt").write_text("./needs_torch-1.0-py3-none-any.whl\n")
        (self.folder / "own.def").write_text(
            "Bootstrap: localimage\nFrom: ready.sif\n\n%environment\n    export OWN=1\n"
        )
        brought.wheel(self.folder / "wheels", "carried", "3.0")
        offline = (
            "name: offline\nbase: {sif: python.sif}\npython: {from: base, packages: [carried==3.0]}\ntraining: none\n"
        )
        (self.folder / "offline.yaml").write_text(offline)

    def types(self, need: str, variables: str = "") -> Said:
        """Write the files of a need and type its commands."""
        part = {**NEEDS, **NGC}[need]
        for name, text in re.findall(r"^```(?:yaml|dockerfile)\n# (\S+)\n(.*?)^```", part, re.MULTILINE | re.DOTALL):
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(text)
        commands = "".join(re.findall(r"^```shell\n(.*?)^```", part, re.MULTILINE | re.DOTALL))
        assert commands, f"the page has no command for {need!r}"
        script = f"{PREAMBLE}{variables}cd {self.folder.name}\n{commands}"
        return self.builder.place.run(["bash", "-c", script.replace("python -m", f"{self.python} -m")], timeout_s=600)

    @property
    def python(self) -> str:
        return str(self.builder.place.lab.python)


@pytest.fixture(scope="module")
def user(builder: Builder, image: Path) -> Iterator[User]:
    somebody = User(builder, "needs")
    somebody.bring(image)
    yield somebody
    shutil.rmtree(somebody.folder)


# The result of each command, at the end of its output.
PRINTS = {
    "Run in a SIF of my own": "rank 3 of 4 in ready.sif",
    "Run in an image of Docker": "COMPLETED",
    "Add my requirements to an image that has PyTorch": "test accuracy",
    "Use a definition of my own": "COMPLETED",
    "Write where the image is read-only": "COMPLETED",
    "Build without a network": ".sif",
    "List the contents, and build the same again": ".sif",
    "Copy an image to another cluster": ".packages",
    "Be sure that nobody changed it": "unchanged since it was built",
    "Read a definition before anything is built": "Bootstrap: docker",
}
PRIVATE = "Take packages from a private index"


def test_every_need_of_the_page_is_tried() -> None:
    assert set(NEEDS) == {*PRINTS, PRIVATE}


@pytest.mark.parametrize("need", PRINTS)
def test_the_page_serves(user: User, need: str) -> None:
    said = user.types(need)
    assert said.returncode == 0, (said.stdout + said.stderr)[-3000:]
    assert PRINTS[need] in said.stdout


def test_the_page_serves_those_who_have_a_private_index(user: User) -> None:
    """The address of an index here replaces the page's address."""
    brought.wheel(user.folder / "index" / "ours", "ours", "2.0")
    with brought.index(user.folder / "index", "me:the-token") as address:
        url = f"http://$USER:$OUR_TOKEN@{address}/"
        NEEDS[PRIVATE] = NEEDS[PRIVATE].replace("https://$USER:$OUR_TOKEN@index.example.org/simple", url)
        said = user.types(PRIVATE, "USER=me OUR_TOKEN=the-token\n")
    assert said.returncode == 0 and said.stdout.strip().endswith(".sif"), (said.stdout + said.stderr)[-3000:]
    assert "the-token" not in said.stderr


@pytest.fixture(scope="module")
def ngc_user(builder: Builder) -> Iterator[User]:
    """A user whose ngc.md names an archive in place of the image of the registry."""
    user = User(builder, "ngc")
    ngc.write(user.folder / "ngc.tar", builder.apptainer.debian)
    own = "dockerfile: Dockerfile\n"
    for need, part in NGC.items():
        text = part.replace(f"docker://{ngc.REFERENCE}", "docker-archive:ngc.tar")
        text = text.replace(f"docker: {ngc.REFERENCE}", "docker_archive: ngc.tar")
        NGC[need] = text.replace(own, f"{own}base: {{docker_archive: ngc.tar}}\n")
    yield user
    shutil.rmtree(user.folder)


def test_a_command_runs_in_an_image_of_the_form_of_ngc(ngc_user: User) -> None:
    said = ngc_user.types("Run a command in it")
    assert said.returncode == 0, (said.stdout + said.stderr)[-3000:]
    assert "rank 3 of 4: release 25.12, MPI in /opt/hpcx/ompi" in said.stdout
    assert "fits: MPI programs find openmpi 4.1.4 in the image" in said.stdout
    assert ngc.BANNER not in said.stdout, "a run does not start the entrypoint"


def test_packages_in_an_image_of_the_form_of_ngc_keep_its_constraints(ngc_user: User) -> None:
    ngc.write_requirements(ngc_user.folder, "2.0")
    refused = ngc_user.types("Add my packages to it")
    assert "pip cannot install pinned 2.0: a constraint asks for pinned==1.0" in refused.stderr, refused.stderr[-3000:]
    lifted = ngc_user.types("Install a version that the image forbids")
    assert lifted.returncode == 0 and lifted.stdout.strip().endswith(".sif"), lifted.stderr[-3000:]
