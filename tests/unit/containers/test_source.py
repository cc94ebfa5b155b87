"""What a run's `image` names, by its form and by what lies there."""

import json
import random
import tarfile
from pathlib import Path
from typing import Literal

import pytest

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images import source
from torusrun.orchestrator.images.builds import convert, one_of_layout
from torusrun.orchestrator.images.builds.build import Options, command
from torusrun.orchestrator.images.runtime import Runtime

SIF = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0more"
NEW = Runtime("apptainer", "apptainer", (1, 4, 5))


@pytest.mark.parametrize(
    ("text", "kind", "place", "tag"),
    [
        ("pytorch-cpu", "image file", "", ""),
        ("images/mine.yaml", "image file", "", ""),
        ("docker-archive:/a/x.tar", "archive", "/a/x.tar", ""),
        ("docker-archive:/a/x.tar:my-tag", "archive", "/a/x.tar", "my-tag"),
        ("oci-archive:/a/x.tar", "archive", "/a/x.tar", ""),
        ("oci:/a/layout:v1", "layout", "/a/layout", "v1"),
        ("docker://debian@sha256:" + "0" * 64, "registry", "debian@sha256:" + "0" * 64, ""),
        ("oras://registry.example.org:5000/a/b:1", "registry", "registry.example.org:5000/a/b:1", ""),
        ("library://a/b/c:1", "registry", "a/b/c:1", ""),
    ],
)
def test_every_form_is_recognised_by_its_words(text: str, kind: str, place: str, tag: str) -> None:
    found = source.parse(text)
    assert (found.kind, found.place, found.tag) == (kind, place, tag)
    assert source.misfit(text) is None


def test_the_kind_of_a_path_follows_from_its_content(tmp_path: Path) -> None:
    (tmp_path / "mine.img").write_bytes(SIF)
    (tmp_path / "sandbox").mkdir()
    assert source.parse(f"{tmp_path}/mine.img").kind == "SIF"
    assert source.parse(f"{tmp_path}/not-there.sif").kind == "SIF"
    assert source.parse(f"{tmp_path}/sandbox").kind == "folder"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mine.tar", "write docker-archive:mine.tar"),
        ("/a/mine.tar.gz", "write docker-archive:/a/mine.tar.gz"),
        ("shub://a/b", "this form is unknown"),
        ("oci://a/b", "this form is unknown"),
        ("docker://--option", "is not a reference"),
        ("docker://a b", "is not a reference"),
        ("docker-archive:", "cannot be a path: it is empty"),
        ("/a/\0.sif", "cannot be a path: it holds a NUL"),
    ],
)
def test_a_file_that_is_not_an_image_is_reported_with_the_remedy(text: str, says: str) -> None:
    assert says in str(source.misfit(text))
    with pytest.raises(UserError, match="the image"):
        source.parse(text)


def test_relative_paths_start_at_the_run_file() -> None:
    folder = Path("/runs")
    texts = ["x.sif", "a/b", "oci:layout:v1", "docker-archive:x.tar", "pytorch-cpu", "docker://debian:12"]
    expected = ["/runs/x.sif", "/runs/a/b", "oci:/runs/layout:v1", "docker-archive:/runs/x.tar", *texts[4:]]
    assert [source.beside(text, folder) for text in texts] == expected


def test_the_key_of_a_conversion_follows_the_content(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar"
    archive.write_bytes(b"one")
    named = source.parse(f"docker-archive:{archive}")
    first = convert.conversion(named, "").key
    moved = tmp_path / "moved.tar"
    archive.rename(moved)
    assert convert.conversion(source.parse(f"docker-archive:{moved}"), "").key == first
    assert convert.conversion(source.parse(f"oci-archive:{moved}"), "").key != first
    tagged = convert.conversion(source.parse(f"oci-archive:{moved}:tag"), "").key
    assert tagged != convert.conversion(source.parse(f"oci-archive:{moved}"), "").key
    with pytest.raises(UserError, match="no runtime accepts a tag here"):
        convert.conversion(source.parse(f"docker-archive:{moved}:tag"), "")
    moved.write_bytes(b"two")
    assert convert.conversion(source.parse(f"docker-archive:{moved}"), "").key != first
    with pytest.raises(UserError, match=r"x\.tar: the image cannot be read: No such file"):
        convert.conversion(named, "")


def test_the_words_that_convert(tmp_path: Path) -> None:
    """A path reaches the runtime as a link beside the build, whatever its name; registries of SIFs are pulled."""
    odd = tmp_path / "it's: odd, $(touch pwned).tar"
    odd.write_bytes(b"x")
    layout = write_layout(tmp_path / "layout", "v1")
    plain = Options(mode="plain")
    words = []
    for number, named in enumerate(
        [
            source.NamedImage("archive", "", "docker-archive", str(odd)),
            source.parse(f"oci:{layout}"),
            source.parse(str(layout)),
            source.parse("docker://a/b:1"),
            source.parse("oras://a/b:1"),
        ]
    ):
        made_from = convert.conversion(named, "").lay_out(tmp_path / str(number))
        words.append(command(NEW, plain, Path("out.sif"), made_from)[1:])
    assert words == [
        ["build", "out.sif", "docker-archive:source"],
        ["build", "out.sif", "oci:source"],
        ["build", "out.sif", "source"],
        ["build", "out.sif", "docker://a/b:1"],
        ["pull", "out.sif", "oras://a/b:1"],
    ]
    assert (tmp_path / "0" / "source").read_bytes() == b"x" and (tmp_path / "1" / "source").readlink() == layout


def write_layout(folder: Path, *names: str) -> Path:
    """A layout of images that have only names."""
    (folder / "blobs/sha256").mkdir(parents=True)
    (folder / "blobs/sha256" / ("a" * 64)).write_text("a blob")
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    images = [{"digest": f"of {name}", "annotations": {one_of_layout.NAME: name}} for name in names]
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [*images, {"digest": "other"}]}))
    return folder


@pytest.mark.parametrize("transport", ["oci", "oci-archive"])
def test_a_tag_chooses_one_of_several_images(transport: str, tmp_path: Path) -> None:
    place = write_layout(tmp_path / "layout", "v1", "localhost/mine:v2", "a:v3", "b:v3")
    if transport == "oci-archive":
        with tarfile.open(tmp_path / "mine.tar", "w") as tar:
            tar.add(place, ".")
            tar.add("/etc/passwd", "../../outside")
        place = tmp_path / "mine.tar"
    for tag, name in (("v1", "v1"), ("v2", "localhost/mine:v2")):
        made = convert.conversion(source.parse(f"{transport}:{place}:{tag}"), "")
        assert made.lay_out(tmp_path / tag) == "oci:source"
        index = json.loads((tmp_path / tag / "source/index.json").read_text())
        assert index["schemaVersion"] == 2 and [image["digest"] for image in index["manifests"]] == [f"of {name}"]
        assert (tmp_path / tag / "source/blobs/sha256" / ("a" * 64)).read_text() == "a blob"
    for tag, number in (("v3", 2), ("none", 0)):
        says = f"{number} of its images are named '{tag}'; it has a:v3, b:v3, localhost/mine:v2, v1"
        with pytest.raises(UserError, match=says):
            convert.conversion(source.parse(f"{transport}:{place}:{tag}"), "").lay_out(tmp_path / tag)
    assert {path.name for path in tmp_path.iterdir()} <= {"layout", "mine.tar", "v1", "v2", "v3", "none"}


@pytest.mark.parametrize("content", [b"no tar", b""])
def test_an_archive_of_another_form_is_one_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine.tar").write_bytes(content)
    with pytest.raises(UserError, match=r"mine\.tar: this is not an? (complete archive of an )?OCI layout"):
        convert.conversion(source.parse(f"oci-archive:{tmp_path}/mine.tar:v1"), "").lay_out(tmp_path / "build")


@pytest.mark.parametrize("packed", ["gz", "xz"])
def test_an_archive_that_is_cut_off_is_one_error_of_one_line(packed: Literal["gz", "xz"], tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", "v1")
    (layout / "blobs/sha256" / ("b" * 64)).write_bytes(random.Random(1).randbytes(100_000))
    with tarfile.open(tmp_path / "whole", f"w:{packed}") as tar:
        tar.add(layout, ".")
    (tmp_path / "mine.tar").write_bytes((tmp_path / "whole").read_bytes()[:50_000])
    with pytest.raises(UserError, match=r"^\S*mine\.tar: this is not a complete archive of an OCI layout: [^\n]+$"):
        convert.conversion(source.parse(f"oci-archive:{tmp_path}/mine.tar:v1"), "").lay_out(tmp_path / "build")


def test_names_of_conversions() -> None:
    texts = ["docker-archive:/a/my image.tar.gz", "oci:/a/layout", "docker://host:5000/a/torch:2.13@sha256:0"]
    assert [convert.name(source.parse(text)) for text in texts] == ["my-image", "layout", "torch"]
