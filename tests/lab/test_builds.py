"""Real builds of images: Apptainer as an ordinary user."""

import hashlib
import json
import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from random import Random

import pytest

from . import killed_builds
from .image_builder import Builder


def test_two_builds_at_once_build_once(builder: Builder) -> None:
    site, image_file = builder.site("images.yaml"), builder.tiny("twins")
    words = [builder.place.lab.python, "-m", "torusrun", "image", "build", image_file, "--site", site]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [builder.place.lab.popen_as_user(words, cwd=builder.home, **pipes) for _ in range(2)]
    said = [build.communicate(timeout=120) for build in both]
    assert [build.returncode for build in both] == [0, 0], said
    assert said[0][0] == said[1][0], "both must name the same image"
    built = [err for _, err in said if "packing" in err]
    assert len(built) == 1, f"one must build, the other take its image: {said}"


@pytest.mark.parametrize("number", killed_builds.SIGNALS, ids=lambda number: number.name)
def test_a_build_that_a_signal_ends_leaves_nothing(builder: Builder, chance: Random, number: signal.Signals) -> None:
    """At any moment: no process stays, the next build finds no folder of the ended one, and no image is half built."""
    images, temporary = (builder.home / f"{name}-{number.name}" for name in ("images", "temporary"))
    site = builder.site(f"site-{number.name}.yaml", f", temporary: {temporary}").removeprefix("./")
    text = (builder.home / site).read_text()
    (builder.home / site).write_text(text.replace(str(builder.images), str(images)))  # other builds are in that one
    site = f"./{site}"
    image_file = builder.tiny(f"killed-{number.name}", killed_builds.SLOW)
    words = [builder.place.lab.python, "-m", "torusrun", "image", "build", image_file, "--site", site, "-q"]
    for _ in range(2):
        killed = killed_builds.kill(
            lambda: builder.place.lab.popen_as_user(words, cwd=builder.home, start_new_session=True),
            number, chance.uniform(0.1, 2.5), images, temporary,
        )  # fmt: skip
        assert number == signal.SIGKILL or not killed.left, str(killed)
        said = builder.place.succeeds("image", "ls", "--json", "--site", site)
        listed = json.loads(said.stdout)["images"]
        for entry in listed:
            verified = builder.place.torusrun("image", "verify", entry["key"], "--site", site)
            assert verified.returncode == 0, f"an image is not whole: {killed}"
            removed = builder.place.torusrun("image", "rm", entry["key"], "--site", site)
            assert removed.returncode == 0, f"the lock is still held: {killed}"
    said = builder.build(image_file, "-q", site=site)
    assert said.returncode == 0, said.stderr
    assert not killed_builds.processes(images), "the next build must end what killed ones left running"
    assert not killed_builds.left(images, temporary), "the next build must clear what killed ones left"


def test_a_build_has_a_tmp_of_its_own(builder: Builder) -> None:
    """The host's may be full or hold strangers' files, and what a killed build left there would stay."""
    post = 'post: |\n  test -z "$(ls -A /tmp)"\n  touch /tmp/of-this-build /var/tmp/of-this-build\n'
    said = builder.build(builder.tiny("own-tmp", post), "-q")
    assert said.returncode == 0, said.stderr
    assert not Path("/tmp/of-this-build").exists() and not Path("/var/tmp/of-this-build").exists()


def test_two_builds_of_one_lock_are_the_same_bits(builder: Builder) -> None:
    wheels, site = builder.apptainer.wheelhouse, builder.site("images.yaml")
    version = next(wheels.glob("joblib-*.whl")).name.split("-")[1]
    image_file = f"name: locked\nbase: {{folder: {builder.apptainer.debian}}}\ntraining: none\n"
    (builder.home / "locked.yaml").write_text(f"{image_file}python: {{packages: [joblib=={version}]}}\n")
    words = ["locked.yaml", "--wheelhouse", str(wheels), "-q"]
    first = builder.build(*words)
    assert first.returncode == 0, first.stderr
    known = json.loads(builder.place.torusrun("image", "inspect", first.stdout.strip(), "--site", site).stdout)
    shutil.copyfile(known["lock"], builder.home / "locked.lock")
    sums = []
    for _ in range(2):
        again = builder.build(*words, "--locked")
        assert again.returncode == 0, again.stderr
        image = again.stdout.strip()
        sums.append(hashlib.sha256(Path(image).read_bytes()).hexdigest())
        assert builder.place.torusrun("image", "rm", image, "--site", site).returncode == 0
    assert sums[0] == sums[1], "times or random values are in the image"


def test_what_a_build_left_to_its_other_ids_is_removed(builder: Builder) -> None:
    """A fakeroot build owns files as ids of /etc/subuid: a killed build leaves them, and chmod is refused."""
    make = "mkdir -p left/rootfs/etc/inner && unshare --map-root-user --map-auto chown -R 5:5 left/rootfs/etc"
    assert builder.place.run(["sh", "-c", f"{make} && ! chmod 700 left/rootfs/etc"]).returncode == 0
    remove = (
        "import pathlib, torusrun.orchestrator.images.builds.cache as c; print(c.remove_tree(pathlib.Path('left')))"
    )
    said = builder.place.run(["python", "-c", remove])
    assert said.stdout == "True\n" and not (builder.home / "left").exists(), said.stderr


def test_a_dockerfile_is_built_and_run_in_the_order_of_its_lines(builder: Builder) -> None:
    """COPY replaces what RUN made, RUN changes what COPY brought, and a stage gives only what is named."""
    home = builder.home / "dockerfile"
    (home / "src").mkdir(parents=True)
    (home / "src" / "a.txt").write_text("from the folder\n")
    (home / "src" / "left.md").write_text("left out\n")
    (home / ".dockerignore").write_text("**/*.md\n")
    (home / "Dockerfile").write_text(
        "ARG BASE=debian:bookworm\nFROM $BASE AS made\nWORKDIR /made\nRUN cd / && echo 'of the stage' > made/b.txt\n"
        "FROM $BASE\nWORKDIR /work\nRUN echo early > a.txt; exit 0\nCOPY src .\nRUN echo later >> a.txt\n"
        "COPY --from=made /made/b.txt sub/\nENV PATH=/work/bin:$PATH\nRUN pwd > where && umask 022\n"
    )
    base = f"name: ordered\ndockerfile: Dockerfile\nbase: {{folder: {builder.apptainer.tiny}}}\n"
    (home / "image.yaml").write_text(base)
    built = builder.build("dockerfile/image.yaml")
    assert built.returncode == 0, built.stderr
    assert "Dockerfile:9: RUN echo later" in built.stderr, "the log must name the line of each RUN"
    show = "cat /work/a.txt /work/sub/b.txt /work/where; ls /work /; echo $PATH"
    inside = builder.place.run(["apptainer", "exec", "--no-home", built.stdout.strip(), "sh", "-c", show])
    assert inside.stdout.startswith("from the folder\nlater\nof the stage\n/work\n"), inside.stderr
    assert "left.md" not in inside.stdout and ".torusrun-copied" not in inside.stdout
    assert "\n/work/bin:" in inside.stdout


def test_a_build_without_any_network(builder: Builder) -> None:
    """In an empty network namespace, from a folder and a folder of wheels."""
    image_file = (
        f"name: wheelhouse\nbase: {{folder: {builder.apptainer.debian}}}\npython: {{packages: [scikit-learn==1.9.1]}}\n"
        "training: none\n"
    )
    (builder.home / "wheelhouse.yaml").write_text(image_file)
    words = ["image", "build", "wheelhouse.yaml", "--wheelhouse", str(builder.apptainer.wheelhouse), "--offline", "-q"]
    name = builder.place.lab.settings.user
    user = ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups", builder.place.lab.python]
    said = subprocess.run(
        ["unshare", "--net", *user, "-m", "torusrun", *words, "--site", builder.site("images.yaml")],
        cwd=builder.home, env={**os.environ, **builder.place.lab.user_env}, text=True, capture_output=True, timeout=600,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr[-3000:]
    assert Path(said.stdout.strip()).is_file()


def test_a_build_in_a_job(builder: Builder) -> None:
    said = builder.build(builder.tiny("in-a-job"), "--on", "job")
    assert said.returncode == 0, said.stderr
    assert "building in job" in said.stderr and Path(said.stdout.strip()).is_file()


@pytest.mark.parametrize(
    ("image_file", "says"),
    [
        ("name: x\nbase: {folder: /no/such/folder}\n", "/no/such/folder"),
        ("name: x\nbase: {folder: BASE}\nsystem: [no-such-package-at-all]\n", "no-such-package-at-all"),
        (
            "name: x\nbase: {folder: BASE}\npython: {packages: [no-such-package-at-all==1.0]}\n",
            "no-such-package-at-all",
        ),
    ],
    ids=["base", "system package", "python package"],
)
def test_an_image_file_that_cannot_be_built_gets_one_message(builder: Builder, image_file: str, says: str) -> None:
    (builder.home / "bad.yaml").write_text(image_file.replace("BASE", str(builder.apptainer.debian)))
    said = builder.build("bad.yaml", "-q", "--wheelhouse", str(builder.apptainer.wheelhouse))
    assert said.returncode in (2, 3) and says in said.stderr, said.stderr
    assert said.stderr.count("\n") <= 2 and "Traceback" not in said.stderr
    again = builder.build(builder.tiny("after-a-bad-one"))
    assert again.returncode == 0, "the next build must go on"


def test_a_full_disk_is_one_message_and_the_next_build_succeeds(builder: Builder) -> None:
    small = builder.home / "small"
    small.mkdir()
    options = f"size=300k,mode=700,uid={pwd.getpwnam(builder.place.lab.settings.user).pw_uid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", small], check=True, timeout=10)
    try:
        site = builder.site("small.yaml").removeprefix("./")
        text = (builder.home / site).read_text().replace(str(builder.images), str(small))
        (builder.home / site).write_text(text)
        said = builder.build(builder.tiny("full"), "-q", site=f"./{site}")
        assert said.returncode == 3 and "space" in said.stderr.lower(), said.stderr
        assert not list(small.glob("*.sif")), "a half-built image must not appear"
        subprocess.run(["mount", "-o", "remount,size=60m", small], check=True, timeout=10)
        said = builder.build("full.yaml", "-q", site=f"./{site}")
        assert said.returncode == 0, said.stderr
    finally:
        subprocess.run(["umount", "-l", small], check=True, timeout=10)
