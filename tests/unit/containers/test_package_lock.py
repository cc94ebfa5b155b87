"""The lock of an image: what it says, what is built from it, and the documents made of it."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.images.builds.cache import Cache, CachedImage
from torusrun.orchestrator.images.definitions import definition_file, package_lock
from torusrun.orchestrator.images.definitions.definition import Variant, render
from torusrun.orchestrator.images.definitions.image_file import Base, ImageFile, Python
from torusrun.orchestrator.images.definitions.inputs import file_checksum
from torusrun.orchestrator.images.definitions.package_lock import (
    PackageLock,
    PythonPackage,
    SystemPackage,
    parse_packages,
)
from torusrun.orchestrator.images.definitions.prepare import prepare
from torusrun.orchestrator.images.definitions.requirements import Brought

A, B = "a" * 64, "b" * 64
LOCAL = "file:///mnt/archives/0/local-2.0-py3-none-any.whl"
LOCK = PackageLock(
    "mine",
    "debian-12",
    (SystemPackage("libc6", "2.36-9+deb12u14", "amd64"), SystemPackage("python3", "3.11.2-1+b1", "amd64")),
    (
        PythonPackage("torch", "2.13.0+cpu", A),
        PythonPackage("local", "2.0", B, LOCAL),
        PythonPackage("of_git", "0.3", "", "https://a.org/of_git.git", "1b8bbe1"),
        PythonPackage("pip", "23.0.1"),
    ),
)
SAID = {
    "distribution": "debian-12",
    "system": [["libc6", "2.36", "amd64"]],
    "python": [["mine", "1.1", ""], ["of.git", "0.3", "https://a.org/g"], ["pip", "23", ""], ["local", "2.0", LOCAL]],
    "pip": [
        ["mine", "1.0", False, {"hash": f"sha256={B}"}, {}],
        ["Mine", "1.1", False, {"hashes": {"sha256": A}}, {}],
        ["of-git", "0.3", True, {}, {"commit_id": "12ab", "vcs": "git"}],
        ["local", "1.0", True, {"hash": f"sha256={A}"}, {}],
    ],
}


def test_what_pip_said_last_of_the_version_inside_is_kept() -> None:
    lock = parse_packages("mine", f"noise\nTORUSRUN-INSTALLED {json.dumps(SAID)}\n")
    assert lock is not None and lock.system == (SystemPackage("libc6", "2.36", "amd64"),)
    assert lock.python == (
        PythonPackage("mine", "1.1", A),
        PythonPackage("of.git", "0.3", "", "https://a.org/g", "12ab"),
        PythonPackage("pip", "23"),
        PythonPackage("local", "2.0"),
    )
    assert parse_packages("mine", "python3: not found") is None


def test_a_lock_comes_back_as_it_went_out_and_is_read_with_suspicion(tmp_path: Path) -> None:
    path = tmp_path / "mine.lock"
    with pytest.raises(UserError, match="there is no such lock; .*inspect IMAGE` names the file to copy"):
        package_lock.read_lock(path)
    write_json(path, LOCK.as_json())
    assert package_lock.for_build(path) == LOCK
    for kind, name, value in (
        ("python", "version", "1.0 --index-url http://x"),
        ("python", "sha256", "00"),
        ("system", "name", "-o"),
        ("python", "source", "a\nb"),
        ("system", "version", 7),
        ("system", "vrsion", "1"),
    ):
        broken = json.loads(json.dumps(LOCK.as_json()))
        broken[kind][0][name] = value
        write_json(path, broken)
        with pytest.raises(SiteError, match="this is damaged"):
            package_lock.read_lock(path)
    write_json(path, replace(LOCK, python=(PythonPackage("torch", "1.0"),)).as_json())
    with pytest.raises(UserError, match="it has no checksums of Python packages"):
        package_lock.for_build(path)


def test_a_build_from_a_lock_installs_its_versions_and_no_others() -> None:
    assert LOCK.requirements(["archives/0/local-2.0-py3-none-any.whl"]) == [
        ("requirements/locked-0.txt", f"torch==2.13.0+cpu --hash=sha256:{A}\n"),
        (
            "requirements/locked-1.txt",
            f"local @ {LOCAL}#sha256={B}\nof_git @ git+https://a.org/of_git.git@1b8bbe1\n",
        ),
    ]
    assert "local" not in LOCK.requirements()[1][1], "the base has what no file of this build is"
    image_file = ImageFile("mine", Base(docker="debian"), system=("curl",), python=Python(packages=("torch==2.13.0",)))
    definition = render(image_file, Variant(), Brought(("torch==2.13.0",)), LOCK)
    definition_file.lint(definition)
    for text in ("python3=3.11.2-1+b1", "--allow-downgrades", "--require-hashes", "--no-deps", "locked-1.txt"):
        assert text in definition
    offline = render(image_file, Variant(offline=True), Brought(("torch==2.13.0",)), LOCK)
    assert "apt-get" not in offline and "has other versions than the lock" in offline
    for stage in (definition_file.stages(definition)[-1], definition_file.stages(offline)[-1]):
        assert subprocess.run(["sh", "-n"], input=stage.sections["post"], text=True, timeout=300).returncode == 0
    assert "curl" not in definition and "torch==2.13.0 " not in definition


def test_a_build_from_a_lock_makes_no_file_that_is_newer_than_the_lock(small: Path, tmp_path: Path) -> None:
    path = tmp_path / "timed.lock"
    write_json(path, {**LOCK.as_json(), "built_s": 1700000000})
    timed = prepare(small, Variant(), lock=path).inputs
    assert timed.built_s == 1700000000
    (stage,) = definition_file.stages(timed.definition)
    assert "    export SOURCE_DATE_EPOCH=1700000000\n" in stage.sections["post"]
    assert definition_file.labels(timed.definition)["org.label-schema.build-date"] == "2023-11-14T22:13:20Z"


def test_a_run_finds_an_image_however_its_packages_were_chosen(small: Path, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_json(tmp_path / "a.lock", LOCK.as_json())
    plain = prepare(small, Variant()).inputs
    housed = prepare(small, Variant(), wheelhouse=wheels).inputs
    (wheels / "a.whl").write_text("1")
    others = [
        prepare(small, Variant(), wheelhouse=wheels).inputs,
        prepare(small, Variant(), lock=tmp_path / "a.lock").inputs,
    ]
    assert len({plain.key, housed.key, *(o.key for o in others)}) == 4, "the content of a wheelhouse is in the key"
    assert {plain.source, housed.source, *(o.source for o in others)} == {plain.key}


@pytest.fixture
def cached(tmp_path: Path) -> tuple[Cache, CachedImage]:
    cache = Cache(tmp_path / "images")
    cache.make()
    key, finished = "0" * 64, tmp_path / "finished"
    finished.write_bytes(b"image")
    image = CachedImage(
        key, cache.image(key), "mine", "Bootstrap: docker\n", file_checksum(finished), 5, 1e9, 1.0, "x", source=B
    )  # fmt: skip
    write_json(cache.packages(key), LOCK.as_json())
    return cache, cache.publish(image, finished)


def test_an_image_is_found_by_its_source(cached: tuple[Cache, CachedImage]) -> None:
    cache, image = cached
    assert cache.newest_of([A, B]) == image and cache.newest_of([A]) is None


def test_a_removed_image_takes_its_lock_along(cached: tuple[Cache, CachedImage]) -> None:
    cache, image = cached
    cache.remove(image)
    assert not [path for path in cache.folder.iterdir() if path.suffix != ".lock"]
