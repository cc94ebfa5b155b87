"""Images that torusrun did not build, and images that changed: commands of a second in images of a megabyte."""

import hashlib
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.places import until

from . import archives
from .image_builder import Builder

COMMAND = "command: [sh, -c, 'echo \"rank $RANK in $APPTAINER_NAME, made $MADE_BY, odd: $ODD\"']"
RUN = f"name: hello\nsite: {{site}}\nimage: {{image}}\nenv: {{{{ODD: 'a\"b'}}}}\ncode: none\n{COMMAND}\n"


def write_run(builder: Builder, image: str, site: str = "") -> None:
    """Write a run of a command over two nodes, in an image with a shell and without Python."""
    text = RUN.format(site=site or builder.site("images.yaml"), image=image)
    (builder.home / "hello.yaml").write_text(f"{text}nodes: 2\nranks_per_node: 1\n")


def submit(builder: Builder, *words: str) -> Path:
    """Submit hello.yaml; returns the folder of the new run."""
    return builder.place._submit("hello.yaml", *words)


def ended_well(builder: Builder, *words: str) -> Path:
    """The folder of a run of hello.yaml that is COMPLETED."""
    run = submit(builder, *words)
    builder.place.watch(run)
    assert builder.place.view(run)["state"] == "COMPLETED", (builder.place.view(run), logs(run))
    return run


def logs(run: Path) -> str:
    return "".join(path.read_text() for path in (run / "attempts/1").glob("logs/*"))


@pytest.fixture
def tiny(builder: Builder) -> Path:
    """The user's own SIF, with only busybox."""
    own = builder.home / "own-tiny.sif"
    if not own.exists():
        argv = ["apptainer", "build", str(own), str(builder.apptainer.tiny)]
        builder.place.lab.run_as_user(argv, timeout_s=60, check=True)
    return own


def test_a_command_runs_in_a_sif_without_python(builder: Builder, tiny: Path) -> None:
    write_run(builder, "own-tiny.sif")
    run = ended_well(builder)
    assert all(f'rank {rank} in own-tiny.sif, made , odd: a"b\n' in logs(run) for rank in (0, 1))


def test_a_docker_archive_is_converted_once_and_runs(builder: Builder) -> None:
    archive = builder.home / "it's mine.tar"
    archives.write_docker(archive, [builder.apptainer.tiny], ["PATH=/bin", "MADE_BY=docker"])
    write_run(builder, f'"docker-archive:{archive.name}"')
    refused = builder.place.torusrun("submit", "hello.yaml")
    assert refused.returncode == 2 and "is not converted to a SIF for this site yet: `" in refused.stderr
    built = builder.place.run(["python", "-m", "torusrun", *shlex.split(refused.stderr.split("`")[1])[1:]])
    assert built.returncode == 0, built.stderr
    run = ended_well(builder)
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


@pytest.mark.parametrize(
    ("harm", "stage"),
    [(replaced, ""), (flipped, ""), (flipped, "/tmp/verified"), (truncated, "/tmp/verified")],
    ids=["replaced-shared", "flipped-shared", "flipped-staged", "truncated-staged"],
)
def test_a_sif_that_changed_after_submit_runs_no_rank(
    builder: Builder, tiny: Path, harm: Callable[[Path], None], stage: str
) -> None:
    own = builder.home / "changed.sif"
    shutil.copyfile(tiny, own)
    submitted = hashlib.sha256(own.read_bytes()).hexdigest()
    site = builder.site("held-images.yaml", stage=stage, request="{memory: 3GiB, options: [--hold]}")
    write_run(builder, own.name, site)
    run = submit(builder)
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
    ended_well(builder)


def test_a_layout_and_a_folder_are_converted(builder: Builder) -> None:
    archives.write_layout(builder.home / "layout", builder.apptainer.tiny, ["PATH=/bin", "MADE_BY=oci"])
    shutil.copytree(builder.apptainer.tiny, builder.home / "sandbox", symlinks=True)
    for image in ("oci:layout", "./sandbox"):
        built = builder.build(image, "-q")
        assert built.returncode == 0, built.stderr
        write_run(builder, image)
        assert "made oci" in logs(ended_well(builder)) or image == "./sandbox"


SEES = 'echo "$RANK of $WORLD_SIZE, $ODD in $APPTAINER_NAME, $(ls /mounted/hello.yaml)"; command -v python3; exit 7'


def test_attempts_and_shells_of_a_held_allocation_are_in_the_image(builder: Builder, tiny: Path) -> None:
    write_run(builder, tiny.name, builder.site("kept.yaml", f", bind: ['{builder.home}:/mounted']", stage="/tmp/kept"))
    said = builder.place.succeeds("hold", "hello.yaml", "--time", "30m", "--name", "kept", "--wait")
    held, sent = said.stdout.split()[0], hashlib.sha256(tiny.read_bytes()).hexdigest()[:16]
    try:
        waits = ["sh", "-c", "echo begun; until test -e released; do sleep 0.1; done"]
        first = submit(builder, "--in", held, "--set", f"command={json.dumps(waits)}")
        second = submit(builder, "--in", held)
        until(lambda: logs(first).count("begun") == 2, "both ranks at work")
        for run, rank in ((first.name, 1), (held, 0)):
            shown = builder.place.torusrun("shell", run, "--rank", str(rank), "--", "sh", "-c", SEES)
            seen = f'{rank} of 2, a"b in {sent}, /mounted/hello.yaml\n'
            assert shown.returncode == 7 and shown.stdout == seen, shown
        builder.place.release(first)
        builder.place.watch(second)
        assert [builder.place.view(run)["state"] for run in (first, second)] == ["COMPLETED"] * 2, logs(second)
        assert all(f"rank {rank} in " in logs(second) for rank in (0, 1))
    finally:
        builder.place.torusrun("cancel", held)


def test_a_program_may_write_into_its_image(builder: Builder, tiny: Path) -> None:
    write_run(builder, tiny.name, builder.site("writable.yaml", ", writable: tmpfs, args: [--fakeroot]"))
    writes = "echo of rank $RANK > /usr/mine && cat /usr/mine"
    run = ended_well(builder, "--set", "ranks_per_node=2", "--set", f"command={json.dumps(['sh', '-c', writes])}")
    assert all(f"of rank {rank}\n" in logs(run) for rank in range(4)), logs(run)
