"""Image files: the shipped ones are whole, and a mistake is named with its place."""

from dataclasses import replace
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.shipped import shipped
from torusrun.orchestrator.images.definitions.image_file import ImageFile, find, load
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.keys.write import schema

GOOD = "name: mine\nbase: {docker: debian}\n"

GPU_IMAGES = ["pytorch-hopper", "pytorch-v100"]

BROKEN = [
    ("no base", "name: mine\n", "1:1", "'base' is missing"),
    ("two bases", "name: mine\nbase: {docker: debian, folder: /x}\n", "2:7", "exactly one of docker, folder"),
    ("an empty base", "name: mine\nbase: {}\n", "2:7", "and none is given"),
    ("digest of a folder", f"name: a\nbase: {{folder: /x, digest: 'sha256:{'0' * 64}'}}\n", "2:28", "is only for"),
    ("short digest", "name: a\nbase: {docker: debian, digest: 'sha256:12'}\n", "2:32", "64 hexadecimal digits"),
    ("digest in the reference", "name: a\nbase: {docker: 'debian@sha256:00'}\n", "2:16", "without the digest"),
    ("registry with docker://", "name: a\nbase: {docker: 'docker://debian'}\n", "2:16", "without docker://"),
    ("reference with a line break", 'name: a\nbase: {docker: "debian\\n%post"}\n', "2:16", "is not an image reference"),
    ("package with a command", GOOD + "system: ['x; touch /pwned']\n", "3:10", "is not a Debian package"),
    ("package that is an option", GOOD + "system: ['-o=x']\n", "3:10", "is not a Debian package"),
    ("no exact version", GOOD + "python: {packages: [torch>=2]}\n", "3:21", "write it as torch==2.13.0"),
    ("index that is no URL", GOOD + "python: {indexes: ['$(id)']}\n", "3:20", "is not a URL"),
    ("label with a line break", GOOD + 'labels: {a: "b\\n%post"}\n', "3:13", "it must be one line"),
    ("label with a build argument", GOOD + 'labels: {a: "b {{ c }}"}\n', "3:13", "'{{'"),
    ("label name with a space", GOOD + 'labels: {"a b": c}\n', "3:10", "is not a label's name"),
    ("bad variable", GOOD + "environment: {A-B: c}\n", "3:15", "is not an environment variable's name"),
    ("file to a relative path", GOOD + "files: [{from: a, to: b}]\n", "3:23", "write an absolute path"),
    ("file to a parent", GOOD + "files: [{from: a, to: /a/../etc}]\n", "3:23", "write an absolute path"),
    ("file with spaces", GOOD + "files: [{from: a, to: '/a /etc/passwd'}]\n", "3:23", "write an absolute path"),
    ("two files at one place", GOOD + "files: [{from: a, to: /a}, {from: b, to: /a}]\n", "3:8", "two things at /a"),
    ("MPI without source", GOOD + "mpi: {from: built}\n", "3:6", "needs 'url'"),
    ("MPI unchecked", GOOD + "mpi: {from: built, url: 'https://a/b'}\n", "3:6", "'mpi.sha256'"),
    ("configure with a command", GOOD + "mpi: {configure: ['--a=$(id)']}\n", "3:19", "is not a configure option"),
    ("training without Python", GOOD + "training: inside\n", "3:11", "needs Python packages"),
    ("architecture", GOOD + "architectures: [volta]\n", "3:17", "write it as sm_70"),
    ("login in an index", GOOD + "python: {indexes: ['https://me:t@a.org/']}\n", "3:19", "the login in 'secrets'"),
    ("login in a git reference", GOOD + "python: {packages: ['a @ git+https://t@a.org/b']}\n", "3:20", "holds a login"),
    ("an argument", "name: a\ndockerfile: D\narguments: {A: 'https://me:t@a.org/'}\n", "3:12", "holds a login"),
    ("login in post", GOOD + "post: curl https://me:t@a.org/\n", "3:7", "holds a login"),
    ("secret written out", GOOD + "secrets: {PIP_INDEX_URL: 'https://a.org'}\n", "3:26", "write env:VARIABLE"),
    ("secret with a wrong name", GOOD + "secrets: {netrcs: 'file:a'}\n", "3:10", "did you mean 'netrc'"),
    ("netrc from a variable", GOOD + "secrets: {netrc: 'env:A'}\n", "3:18", "is a file; write file:PATH"),
    ("section in post", GOOD + "post: |\n  true\n  %files\n", "3:7", "a section or stage: '%files'"),
    ("argument in post", GOOD + "post: echo {{ a }}\n", "3:7", "'{{'"),
    ("definition and base", GOOD + "definition: a.def\n", "2:7", "'base' has no effect together with 'definition'"),
    ("definition and post", "name: a\ndefinition: a.def\npost: b\n", "3:7", "'post' has no effect"),
    ("unknown key", GOOD + "pyhton: {}\n", "3:1", "did you mean 'python'?"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "says"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_broken_image_file_gets_one_clear_message(text: str, place: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "image.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load(path)
    assert len(caught.value.problems) == 1
    assert str(caught.value).startswith(f"{path}:{place}: ") and says in str(caught.value)


def test_a_login_that_is_a_variable_is_not_reported(tmp_path: Path) -> None:
    path = tmp_path / "image.yaml"
    path.write_text(GOOD + "post: git clone https://$USER:$TOKEN@a.org/b\nsecrets: {USER: env:A, TOKEN: file:b}\n")
    assert load(path).secrets == {"USER": "env:A", "TOKEN": "file:b"}


def test_a_definition_is_an_image_file_by_itself(tmp_path: Path) -> None:
    image_file = load(tmp_path / "9 of mine.def")
    assert image_file.definition == "9 of mine.def" and image_file.name == "image-9-of-mine"
    assert find("mine.def") == Path("mine.def")


def test_every_shipped_image_file_loads_under_its_own_name() -> None:
    names = {path.stem for path in shipped("containers").glob("*.yaml")}
    slim = {f"{name}-slim" for name in GPU_IMAGES}
    assert names == {"pytorch-cpu", *GPU_IMAGES, *slim, "sony-2018"}
    assert {load(find(name)).name for name in names} == names


@pytest.mark.parametrize("name", GPU_IMAGES)
def test_a_slim_image_file_differs_in_what_it_leaves_out_alone(name: str) -> None:
    full, slim = load(find(name)), load(find(f"{name}-slim"))
    assert set(full.system) - set(slim.system) == {"g++", "gcc", "python3-dev"} and slim.post
    assert slim == replace(full, name=slim.name, system=slim.system, post=slim.post)


def test_the_v100_image_file_keeps_volta() -> None:
    image_file = load(find("pytorch-v100"))
    assert image_file.architectures == ("sm_70",)
    assert any(package.endswith("+cu126") for package in image_file.python.packages)


def test_sonys_software_is_the_papers() -> None:
    image_file = load(find("sony-2018"))
    assert image_file.system[0].startswith("libcudnn7=7.3.1.20") and str(image_file.mpi.url).endswith("2.1.3.tar.bz2")


def test_every_mpi_that_is_built_has_its_checksum() -> None:
    built = [load(path).mpi for path in shipped("containers").glob("*.yaml") if load(path).mpi.source == "built"]
    assert len(built) == 3 and all(mpi.sha256 for mpi in built)


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(UserError, match=r"no image file 'pytorch-v10' .*did you mean 'pytorch-v100'"):
        find("pytorch-v10")


def test_an_image_file_has_a_schema() -> None:
    made = schema(ImageFile, "image file")
    assert made["required"] == ["name"] and made["properties"]["mpi"]["properties"]["from"]["enum"]
