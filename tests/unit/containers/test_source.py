"""What a run's `image` names, by its form and by what lies there."""

from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images import source
from torusrun.orchestrator.images.builds import convert
from torusrun.orchestrator.images.builds.build import Options, command
from torusrun.orchestrator.images.runtime import Runtime

SIF = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0more"
NEW = Runtime("apptainer", "apptainer", (1, 4, 5))


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("pytorch-cpu", "image file", ""),
        ("images/mine.yaml", "image file", ""),
        ("docker-archive:/a/x.tar", "archive", "/a/x.tar"),
        ("oci-archive:/a/x.tar", "archive", "/a/x.tar"),
        ("oci:/a/layout", "layout", "/a/layout"),
        ("docker://debian@sha256:" + "0" * 64, "registry", "debian@sha256:" + "0" * 64),
        ("oras://registry.example.org:5000/a/b:1", "registry", "registry.example.org:5000/a/b:1"),
        ("library://a/b/c:1", "registry", "a/b/c:1"),
    ],
)
def test_every_form_is_recognised_by_its_words(text: str, kind: str, place: str) -> None:
    found = source.parse(text)
    assert (found.kind, found.place) == (kind, place)
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
        ("oci:/a/layout:v1", "it takes no tag; copy this image alone: skopeo copy oci:/a/layout:v1 oci:NEW"),
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
    texts = ["x.sif", "a/b", "oci:layout", "docker-archive:x.tar", "pytorch-cpu", "docker://debian:12"]
    expected = ["/runs/x.sif", "/runs/a/b", "oci:/runs/layout", "docker-archive:/runs/x.tar", *texts[4:]]
    assert [source.beside(text, folder) for text in texts] == expected


def test_the_key_of_a_conversion_follows_the_content(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar"
    archive.write_bytes(b"one")
    named = source.parse(f"docker-archive:{archive}")
    first = convert.conversion(named).key
    moved = tmp_path / "moved.tar"
    archive.rename(moved)
    assert convert.conversion(source.parse(f"docker-archive:{moved}")).key == first
    assert convert.conversion(source.parse(f"oci-archive:{moved}")).key != first
    moved.write_bytes(b"two")
    assert convert.conversion(source.parse(f"docker-archive:{moved}")).key != first
    with pytest.raises(UserError, match=r"x\.tar: the image cannot be read: No such file"):
        convert.conversion(named)


def test_the_words_that_convert(tmp_path: Path) -> None:
    """A path reaches the runtime as a link beside the build, whatever its name; registries of SIFs are pulled."""
    odd = tmp_path / "it's: odd, $(touch pwned).tar"
    odd.write_bytes(b"x")
    layout = tmp_path / "layout"
    layout.mkdir()
    (layout / "index.json").write_text("{}")
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
        made_from = convert.conversion(named).lay_out(tmp_path / str(number))
        words.append(command(NEW, plain, Path("out.sif"), made_from)[1:])
    assert words == [
        ["build", "out.sif", "docker-archive:source"],
        ["build", "out.sif", "oci:source"],
        ["build", "out.sif", "source"],
        ["build", "out.sif", "docker://a/b:1"],
        ["pull", "out.sif", "oras://a/b:1"],
    ]
    assert (tmp_path / "0" / "source").read_bytes() == b"x" and (tmp_path / "1" / "source").readlink() == layout


def test_names_of_conversions() -> None:
    texts = ["docker-archive:/a/my image.tar.gz", "oci:/a/layout", "docker://host:5000/a/torch:2.13@sha256:0"]
    assert [convert.name(source.parse(text)) for text in texts] == ["my-image", "layout", "torch"]
