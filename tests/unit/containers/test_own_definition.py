"""A user's own definition: everything that it takes in is part of the key."""

import re
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.images.definitions import definition_file
from torusrun.orchestrator.images.definitions.definition import Variant
from torusrun.orchestrator.images.definitions.dockerfile import instructions
from torusrun.orchestrator.images.definitions.prepare import prepare, rendered, sources

OWN = """Bootstrap: localimage
From: base.sif

%files
    lists/*.txt /opt

%files from other
    /a /b

%post
    true
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "a.txt").write_text("1")
    (tmp_path / "base.sif").write_text("base")
    (tmp_path / "mine.def").write_text(OWN)
    return tmp_path / "mine.def"


def test_the_key_follows_its_text_its_files_and_its_base(own: Path) -> None:
    keys = [prepare(own, Variant()).inputs.key]
    for change in (
        lambda: (own.parent / "lists" / "a.txt").write_text("2"),
        lambda: (own.parent / "lists" / "b.txt").write_text("1"),
        lambda: (own.parent / "base.sif").write_text("other"),
        lambda: own.write_text(OWN + "    false\n"),
    ):
        change()
        keys.append(prepare(own, Variant()).inputs.key)
    assert len(set(keys)) == 5


def test_it_is_built_unchanged_in_its_own_folder(own: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\ndefinition: mine.def\ntraining: none\n")
    found = prepare(tmp_path / "mine.yaml", Variant())
    assert found.inputs.definition == OWN == rendered(own, Variant())[0] and found.inputs.directory == own.parent
    assert found.inputs.labels == {"torusrun.training": "none"}
    assert sources(own, False) == [prepare(own, Variant()).inputs.key] * 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("lists/*.txt", "none"), "%files: none does not exist"),
        (("lists/*.txt", "'a"), "has an open quote"),
        (("lists/*.txt", "{{ a }}"), "has a build argument"),
        (("base.sif", "none.sif"), "none.sif: the image file's base does not exist"),
        (("Bootstrap", "Strap"), "it has no 'Bootstrap:' line"),
        (("true", "pip install -i https://me:t0ken@a.org/ x"), "holds a login"),
    ],
)
def test_what_cannot_be_built_is_named(own: Path, change: tuple[str, str], says: str) -> None:
    own.write_text(OWN.replace(*change))
    with pytest.raises(UserError, match=says):
        prepare(own, Variant())


def test_it_has_no_lock_and_no_network_offline(own: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be built from a lock"):
        prepare(own, Variant(), lock=tmp_path / "a.lock")
    prepare(own, Variant(offline=True))
    own.write_text("Bootstrap: docker\nFrom: debian:12\n")
    with pytest.raises(UserError, match="cannot start from 'docker'"):
        prepare(own, Variant(offline=True))
    assert "without its digest" in prepare(own, Variant()).advice[0]


@pytest.mark.parametrize("name", ["a[1]", "a*", "a?"])
def test_the_folder_of_a_definition_is_no_pattern(own: Path, tmp_path: Path, name: str) -> None:
    moved = tmp_path / name
    moved.mkdir()
    for part in ("mine.def", "base.sif", "lists"):
        (tmp_path / part).rename(moved / part)
    found = prepare(moved / "mine.def", Variant()).inputs
    assert [path for _, path in found.beside] == [moved / "lists" / "a.txt"], "escape the folder's name in the pattern"


def test_a_definition_becomes_a_dockerfile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my.def").write_text(TWO_STAGES)
    target = tmp_path / "Dockerfile"
    assert main(["image", "convert", f"{tmp_path}/my.def", "--to", str(target)]) == 0
    assert "%test is left out" in capsys.readouterr().err
    first, second, *rest = instructions.read(target.read_text(), target)
    assert (first.text, second.text) == ("Debian:12 AS build", "<<'END0'")
    assert "apt-get install -y debootstrap" in second.documents[0].content and "if true; then\n" in target.read_text()
    assert [one.word for one in rest] == ["FROM", "ADD", "LABEL", "ENV", "COPY", "RUN", "COPY", "ENTRYPOINT"]
    assert "ENV PATH=/opt/bin:$PATH" in target.read_text() and "COPY --from=build /out /opt" in target.read_text()
    assert main(["image", "convert", f"{tmp_path}/my.def", "--to", str(target)]) == 2, "it must not replace a file"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Bootstrap: docker\nFrom: Debian:12", "Bootstrap: localimage\nFrom: a.sif", "only an image of a registry"),
        ("%test", "%setup", "%setup has no equal in a Dockerfile"),
        ("PATH=/opt/bin:$PATH", "A=$(date)", "ENV takes no other"),
    ],
)
def test_what_a_dockerfile_cannot_say_is_one_error(old: str, new: str, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        definition_file.dockerfile(TWO_STAGES.replace(old, new), "my.def")


TWO_STAGES = """Bootstrap: docker
From: Debian:12
Stage: build

%post
    apt-get install -y debootstrap
    if true; then
        echo "%done"
    fi

Bootstrap: docker
From: nvcr.io/nvidia/pytorch:25.12-py3
Stage: final

%files from build
    /out /opt

%files
    train.py /opt/train.py

%labels
    org.example.team vision

%environment
    export PATH=/opt/bin:$PATH

%post
    mkdir /data

%runscript
    exec python "$@"

%test
    true
"""
