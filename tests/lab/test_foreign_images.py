"""Images that torusrun did not build, and images that changed: commands of a second in images of a megabyte."""

import hashlib
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from . import docker_archive
from .image_builder import Builder

COMMAND = "command: [sh, -c, 'echo \"rank $RANK in $APPTAINER_NAME, made $MADE_BY, odd: $ODD\"']"
RUN = f"name: hello\nsite: {{site}}\nimage: {{image}}\nenv: {{{{ODD: 'a\"b'}}}}\ncode: none\n{COMMAND}\n"


def write_run(builder: Builder, image: str, site: str = "") -> None:
    """A command over two nodes, in an image with a shell and no Python."""
    text = RUN.format(site=site or builder.site("images.yaml"), image=image)
    (builder.home / "hello.yaml").write_text(f"{text}nodes: 2\nranks_per_node: 1\n")


def logs(run: Path) -> str:
    return "".join(path.read_text() for path in (run / "attempts/1/logs").iterdir())


@pytest.fixture
def tiny(builder: Builder) -> Path:
    """A SIF of its user's own, with busybox and nothing else."""
    own = builder.home / "own-tiny.sif"
    if not own.exists():
        argv = ["apptainer", "build", str(own), str(builder.apptainer.tiny)]
        builder.place.lab.run_as_user(argv, timeout_s=60, check=True)
    return own


def test_a_command_runs_in_a_sif_without_python(builder: Builder, tiny: Path) -> None:
    write_run(builder, "own-tiny.sif")
    run = builder.place.submit_file("hello.yaml")
    builder.place.watch(run)
    assert builder.place.view(run)["state"] == "COMPLETED", builder.place.view(run)
    assert all(f'rank {rank} in own-tiny.sif, made , odd: a"b\n' in logs(run) for rank in (0, 1))


def test_a_docker_archive_is_converted_once_and_runs(builder: Builder) -> None:
    archive = builder.home / "it's mine.tar"
    docker_archive.write(archive, builder.apptainer.tiny, ["PATH=/bin", "MADE_BY=docker"])
    write_run(builder, f'"docker-archive:{archive.name}"')
    refused = builder.place.torusrun("submit", "hello.yaml")
    assert refused.returncode == 2 and "is not converted to a SIF for this site yet: `" in refused.stderr
    built = builder.place.run(["python", "-m", "orchestrator", *shlex.split(refused.stderr.split("`")[1])[1:]])
    assert built.returncode == 0, built.stderr
    run = builder.place.submit_file("hello.yaml")
    builder.place.watch(run)
    assert builder.place.view(run)["state"] == "COMPLETED", builder.place.view(run)
    assert "rank 1" in logs(run) and "made docker" in logs(run)
    assert (run / "image.def").read_text().startswith("Bootstrap: docker-archive\n")


def replaced(path: Path) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(path.read_bytes() + b"\0")
    other.replace(path)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("harm", [replaced, flipped, truncated])
@pytest.mark.parametrize("stage", ["", ", stage: /tmp/verified"], ids=["shared", "staged"])
def test_a_sif_that_changed_after_submit_runs_no_rank(
    builder: Builder, tiny: Path, harm: Callable[[Path], None], stage: str
) -> None:
    own = builder.home / "changed.sif"
    shutil.copyfile(tiny, own)
    submitted = hashlib.sha256(own.read_bytes()).hexdigest()
    write_run(builder, own.name, builder.site("held.yaml", stage, scheduler_args="[--hold]"))
    run = builder.place.submit_file("hello.yaml")
    harm(own)
    now = hashlib.sha256(own.read_bytes()).hexdigest()
    builder.place.run(["scontrol", "release", *builder.place.queued()])
    builder.place.watch(run)
    view = builder.place.view(run)
    assert view["state"] == "FAILED" and str(own) in view["reason"], view
    assert submitted in view["reason"] and now in view["reason"] and "resume RUN --new-image" in view["reason"]
    assert "in changed.sif" not in logs(run)


def test_a_damaged_image_of_the_cache_is_no_hit_and_build_heals_it(builder: Builder) -> None:
    image_file = builder.tiny("healed")
    image = Path(builder.build(image_file, "-q").stdout.strip())
    sound = image.stat().st_size
    truncated(image)
    write_run(builder, image_file)
    refused = builder.place.torusrun("submit", "hello.yaml")
    assert refused.returncode == 2 and f"{image}: its SHA-256 is " in refused.stderr
    healed = builder.build(image_file, "-q")
    assert healed.returncode == 0 and Path(healed.stdout.strip()) == image and image.stat().st_size > sound // 2
    run = builder.place.submit_file("hello.yaml")
    builder.place.watch(run)
    assert builder.place.view(run)["state"] == "COMPLETED", builder.place.view(run)
