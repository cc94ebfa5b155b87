"""Definitions: golden text for every shipped image file and variant, and values that try to be more than values."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.golden_text import assert_golden, differences
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.shipped import shipped
from torusrun.orchestrator.images.definitions import definition_file
from torusrun.orchestrator.images.definitions.definition import Variant, render
from torusrun.orchestrator.images.definitions.image_file import Base, ImageFile, ImageMpi, find, load
from torusrun.orchestrator.images.definitions.inputs import file_checksum
from torusrun.orchestrator.images.definitions.requirements import brought

GOLDEN = Path(__file__).parent / "golden"
IMAGE_FILES = sorted(path.stem for path in shipped("containers").glob("*.yaml"))
WHOLE = Variant()  # kept as it is; of the others the golden files hold how they differ from it
VARIANTS = [WHOLE, Variant(host_mpi=True), Variant(wheelhouse=True), Variant(wheelhouse=True, offline=True)]
PLAIN = ImageFile("plain", Base(docker="debian:bookworm"))
DIGEST = "sha256:" + "1f" * 32


def rendered(name: str, variant: Variant) -> str:
    image_file = load(find(name))
    return render(image_file, variant, brought(image_file.python, shipped("containers")))


def kept_in(name: str, variant: Variant) -> str:
    return f"{name}.{variant.name}.{'def' if variant == WHOLE else 'diff'}"


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
@pytest.mark.parametrize("name", IMAGE_FILES)
def test_a_definition_is_what_it_was(name: str, variant: Variant) -> None:
    text = rendered(name, variant)
    kept = text if variant == WHOLE else differences(text, rendered(name, WHOLE))
    assert_golden(GOLDEN / kept_in(name, variant), kept)
    definition_file.lint(text)
    read = definition_file.stages(text)
    always = {"post", "environment", "labels", "test", "runscript"}
    assert set(read[-1].sections) - {"files", "files from mpi"} == always
    for stage in read:
        for section in {"post", "environment", "test", "runscript"} & set(stage.sections):
            done = subprocess.run(["sh", "-n"], input=stage.sections[section], text=True, timeout=300)
            assert done.returncode == 0, f"%{section} is not shell"


def test_every_golden_file_and_template_is_used() -> None:
    assert {p.name for p in GOLDEN.iterdir()} == {kept_in(name, v) for name in IMAGE_FILES for v in VARIANTS}
    assert {p.name for p in (shipped("templates") / "container").iterdir()} == {
        "image.def.j2",
        "mpi.def.j2",
        "packages.def.j2",
        "python.def.j2",
        "secrets.def.j2",
        "dockerfile.def.j2",
    }


@pytest.mark.parametrize("name", IMAGE_FILES)
def test_both_runtimes_read_the_same_text(name: str) -> None:
    """Nothing in a definition is of one runtime only: no variable of theirs, no build argument, no new section."""
    text = render(load(find(name)))
    assert not re.search(r"APPTAINER|SINGULARITY|\{\{|%arguments", text)


def test_a_wheelhouse_build_asks_no_index() -> None:
    offline = rendered("pytorch-cpu", Variant(wheelhouse=True, offline=True))
    assert "--no-index --find-links /mnt/wheels" in offline
    assert not re.search("index-url|apt-get .*update|curl", offline)


def test_the_hosts_mpi_replaces_the_images() -> None:
    for name in IMAGE_FILES:
        text = render(load(find(name)), Variant(host_mpi=True))
        assert "openmpi" not in text.replace("org.opencontainers", "") and "/opt/host-mpi/lib" in text


def test_a_digest_replaces_the_tag() -> None:
    text = render(replace(PLAIN, base=Base(docker="registry.org:5000/a/b:1.2", digest=DIGEST)))
    assert f"From: registry.org:5000/a/b@{DIGEST}\n" in text


@pytest.mark.parametrize("kind", ["folder", "sif"])
def test_a_local_base_is_not_named_by_its_path(kind: str) -> None:
    assert "From: base\n" in render(replace(PLAIN, base=Base(**{kind: "/my/$(id) base"})))


HOSTILE = [
    "a\n%post\n    touch /pwned", "%post", "a\n  %environment", "Bootstrap: docker\nFrom: evil", "x\nBOOTSTRAP: docker",
    "{{ ARG }}", "{{{", "{{{{{", "$(touch pwned)", "`touch pwned`", "a'b\"c", "'\n'", "''", "\\", "\\\n", "a\\", " a ",
    "\n", "\n\n\n", "a \nb", "a\r\nb", "\r", "#x", "a\n#b", "export A=b", "", "é\u2028\x85\x0b\x0c", "*", "~", "!!",
    "\t",
]  # fmt: skip
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    HOSTILE
)


def shown(lines: str, names: list[str], shell: str, where: Path) -> list[str]:
    """Run lines of a shell section by a real shell, and what the variables became."""
    program = lines + "\nprintf '%s\\0' " + " ".join(f'"${name}"' for name in names)
    clean = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([shell, "-c", program], cwd=where, capture_output=True, timeout=300, check=True, env=clean)
    return done.stdout.decode().split("\0")[:-1]


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=12))
@example(HOSTILE)
def test_no_value_escapes_its_quotes(tmp_path_factory: pytest.TempPathFactory, values: list[str]) -> None:
    environment = {f"V{i}": value for i, value in enumerate(values)}
    text = render(replace(PLAIN, environment=environment))
    definition_file.lint(text)
    reference = definition_file.stages(render(PLAIN))[-1]
    (stage,) = definition_file.stages(text)
    assert {k: v for k, v in stage.sections.items() if k != "environment"} == {
        k: v for k, v in reference.sections.items() if k != "environment"
    }, "a value has become part of another section"
    where = tmp_path_factory.getbasetemp()
    for shell in ("bash", "sh"):
        assert shown(stage.sections["environment"], list(environment), shell, where) == values
    assert not (where / "pwned").exists()


def source_archive(folder: Path) -> Path:
    """The least that can be configured and made as an MPI is."""
    source = folder / "openmpi-1.0"
    source.mkdir()
    (source / "configure").write_text('#!/bin/sh\nfor prefix; do :; done\necho "P = ${prefix#--prefix=}" > config.mk\n')
    (source / "configure").chmod(0o755)
    (source / "Makefile").write_text("include config.mk\nall:\ninstall-strip:\n\tmkdir -p $(P)/bin $(P)/share/man\n")
    archive = folder / "openmpi-1.0.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", folder, source.name], check=True, timeout=300)
    return archive


@pytest.mark.parametrize("true_sum", [True, False])
def test_an_mpi_is_built_beside_what_strangers_put_into_tmp(tmp_path: Path, true_sum: bool) -> None:
    """The real %post of the first stage, by a real shell, on a /tmp where the names it once had are taken."""
    archive = source_archive(tmp_path)
    total = file_checksum(archive) if true_sum else "0" * 64
    mpi = ImageMpi("built", url=f"https://example.org/{archive.name}", sha256=total)
    definition = render(replace(PLAIN, mpi=mpi), Variant(offline=True))
    prefix, tmp = tmp_path / "prefix", tmp_path / "tmp"
    for taken in ("mpi", archive.name):
        (tmp / taken).mkdir(parents=True)
    post = definition_file.stages(definition)[0].sections["post"]
    assert f"/tmp/{archive.name}" not in post and "/tmp/mpi" not in post
    for place, here in (
        ("/mnt/wheels/", f"{tmp_path}/"),
        ("/opt/openmpi", str(prefix)),
        ("/tmp/torusrun", f"{tmp}/torusrun"),
    ):
        post = post.replace(place, here)
    said = subprocess.run(["sh", "-ex"], input=post, text=True, capture_output=True, timeout=300, cwd="/")
    assert (said.returncode == 0) == true_sum == (prefix / "bin").is_dir(), said.stderr
    assert {path.name for path in tmp.iterdir()} == {"mpi", archive.name}, "nothing of the build may be left in /tmp"
    assert true_sum or "did NOT match" in said.stderr


def test_an_mpi_without_a_checksum_is_not_rendered() -> None:
    with pytest.raises(UserError, match=r"'plain' builds an MPI; 'mpi.sha256' must be .*sha256sum"):
        render(replace(PLAIN, mpi=ImageMpi("built", url="https://example.org/a.tar.gz")))


@pytest.mark.parametrize("value", ["a\nb", "a # b", " a", "a ", "{{ x }}", "a\rb", "a\u2028b", ""])
def test_what_headers_and_labels_cannot_hold_is_refused(value: str) -> None:
    """An image file made in Python does not pass through the reader, so the definition looks again."""
    for image_file in (
        replace(PLAIN, labels={"a": value}) if value else replace(PLAIN, base=Base()),
        replace(PLAIN, base=Base(docker=value)),
    ):
        with pytest.raises(UserError):
            render(image_file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no 'Bootstrap:' line"),
        ("Bootstrap: docker\n%post\n", "does not say 'From:'"),
        ("Bootstrap: shub\nFrom: x\n", "unknown bootstrap 'shub'"),
        ("Bootstrap: docker\nFrom: x\n%psot\n", "unknown section %psot"),
        ("Bootstrap: docker\nFrom: x\n%post\n {{ a }}\n", "build argument"),
        ("Bootstrap: docker\nFrom: x\nBootstrap: docker\nFrom: y\n", "must have a name"),
        ("Bootstrap: docker\nFrom: x\n%post\n" + "true\n" * 14000, "longer than the 65536 bytes"),
    ],
)
def test_lint_names_what_a_runtime_would_refuse(text: str, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        definition_file.lint(text)
