"""Real builds from users' packages: Apptainer as an ordinary user."""

import base64
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from . import archives, brought
from .image_builder import Builder

TOKEN = "t0ken-of-the-index"


@pytest.fixture
def folder(builder: Builder) -> Path:
    """An empty folder of the lab's user for the files of a test."""
    place = builder.home / "brought"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def inside(builder: Builder, image: str, *words: str) -> str:
    said = builder.place.lab.run_as_user(
        ["apptainer", "exec", "--containall", image, *words], timeout_s=120, check=True
    )
    return str(said.stdout)


def test_a_token_builds_an_image_and_is_in_no_file_of_it(builder: Builder, folder: Path) -> None:
    """Requirements with hashes from an index with a login; then the same again from the image's lock."""
    made = brought.wheel(folder / "index" / "mine", "mine", "1.0")
    total = hashlib.sha256(made.read_bytes()).hexdigest()
    (folder / "requirements.txt").write_text(f"mine==1.0 --hash=sha256:{total}\n")
    (folder / "private.yaml").write_text(
        f"name: private\nbase: {{folder: {builder.apptainer.debian}}}\n"
        "python: {from: base, requirements: requirements.txt}\n"
        "secrets: {PIP_INDEX_URL: env:MY_INDEX}\ntraining: none\n"
    )
    site, lab = builder.site("images.yaml"), builder.place.lab
    words = [lab.python, "-m", "torusrun", "image", "build", "brought/private.yaml", "--site", site]
    with brought.index(folder / "index", f"me:{TOKEN}") as address:
        url = f"http://me:{TOKEN}@{address}/"
        shell = {"MY_INDEX": url, "APPTAINER_SANDBOX": "1", "SINGULARITY_NO_MOUNT": "tmp"}
        first = lab.run_as_user(words, cwd=builder.home, env=shell, timeout_s=600)
        assert first.returncode == 0, first.stderr[-3000:]
        known = json.loads(builder.place.torusrun("image", "inspect", "private", "--site", site).stdout)
        kept = known["packages"]
        (folder / "private.lock").write_text(Path(known["lock"]).read_text())
        assert [p["sha256"] for p in kept["python"] if p["name"] == "mine"] == [total] and len(kept["system"]) > 50
        wrong = lab.run_as_user(words, cwd=builder.home, env={**shell, "MY_INDEX": f"http://{address}/"})
        assert wrong.returncode == 0 and wrong.stdout == first.stdout, "the secret is no part of the key"
        again = lab.run_as_user([*words, "--locked"], cwd=builder.home, env=shell, timeout_s=600)
        assert again.returncode == 0 and again.stdout != first.stdout, again.stderr[-3000:]
        log = Path(again.stdout.strip()).with_suffix(".log").read_text()
        assert "--require-hashes --no-deps" in log and "apt-get" not in log
    image = first.stdout.strip()
    assert inside(builder, image, "python3", "-c", "import mine; print(mine.VERSION)") == "1.0\n"
    secrets = [TOKEN, base64.b64encode(url.encode()).decode()]
    for path in builder.images.glob("[!.]*"):  # a folder with a dot is of a build that another test has killed
        assert not path.is_file() or not any(s.encode() in path.read_bytes() for s in secrets), f"{path} has the token"
    assert not any(secret in first.stderr for secret in secrets)
    sought = [word for secret in secrets for word in ("-e", secret)]
    search = ["grep", "-rlsF", *sought, "/bin", "/etc", "/opt", "/root", "/usr", "/var", "/.singularity.d", "/home"]
    found = lab.run_as_user(["apptainer", "exec", "--containall", image, *search], timeout_s=120)
    assert found.returncode == 1 and found.stdout == "", f"the image has the token in {found.stdout}"


def test_an_archive_of_docker_and_a_definition_of_ones_own_are_bases(builder: Builder, folder: Path) -> None:
    archives.write_docker(folder / "mine.tar", [builder.apptainer.tiny], ["PATH=/bin", "FROM_DOCKER=yes"])
    (folder / "archive.yaml").write_text(
        "name: archive\nbase: {docker_archive: mine.tar}\npost: echo made > /made\ntraining: none\n"
    )
    built = builder.build("brought/archive.yaml")
    assert built.returncode == 0, built.stderr[-3000:]
    said = inside(builder, built.stdout.strip(), "/bin/sh", "-c", "echo $FROM_DOCKER $(cat /made)")
    assert said == "yes made\n"
    (folder / "note.txt").write_text("mine")
    (folder / "own.def").write_text(
        f"Bootstrap: localimage\nFrom: {Path(built.stdout.strip())}\n\n%files\n    note.txt /note.txt\n"
    )
    own = builder.build("brought/own.def")
    assert own.returncode == 0, own.stderr[-3000:]
    assert inside(builder, own.stdout.strip(), "/bin/cat", "/note.txt") == "mine"
    (folder / "note.txt").write_text("other")
    assert builder.build("brought/own.def").stdout != own.stdout
