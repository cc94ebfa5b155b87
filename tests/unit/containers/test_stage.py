"""The image on a node's own disk, tried as a stranger would who can write into the folder above."""

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.job.image import stage
from torusrun.orchestrator.job.image.stage import copied, place, sent

CONTENT = b"image" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()
STRANGER = 4242
AS_ROOT = pytest.mark.needs("users")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "shared" / "x.sif"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A folder as /tmp is: everybody may write, and only owners remove."""
    folder = tmp_path / "node"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r" / "attempts" / "1"


def private_folder(node: Path) -> Path:
    return node / f"torusrun-{os.geteuid()}"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_copy_is_its_users_alone(image: Path, node: Path, attempt: Path) -> None:
    copy = copied(image, str(node), SHA, attempt)
    assert copy.read_bytes() == CONTENT and copy == place(str(node), SHA)
    assert mode(copy.parent) == 0o700 and {mode(path) for path in copy.parent.iterdir()} == {0o600}
    assert {path.suffix for path in copy.parent.iterdir()} == {".sif", ".json", ".lock"}


def a_link(folder: Path, elsewhere: Path) -> None:
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)


def a_strangers(folder: Path, elsewhere: Path) -> None:
    folder.mkdir(mode=0o755)
    os.chown(folder, STRANGER, STRANGER)


def a_strangers_open_to_all(folder: Path, elsewhere: Path) -> None:
    a_strangers(folder, elsewhere)
    folder.chmod(0o777)


def open_to_all(folder: Path, elsewhere: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def readable_by_others(folder: Path, elsewhere: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)


def a_file(folder: Path, elsewhere: Path) -> None:
    folder.touch()


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (a_link, "this is a symbolic link of user"),
        pytest.param(a_strangers, f"belongs to user {STRANGER}", marks=AS_ROOT),
        pytest.param(a_strangers_open_to_all, f"belongs to user {STRANGER}", marks=AS_ROOT),
        (open_to_all, r"open to others \(mode 0777\)"),
        (readable_by_others, r"open to others \(mode 0755\)"),
        (a_file, "this is not a folder; it belongs to user"),
    ],
)
def test_a_planted_folder_is_refused(
    image: Path, node: Path, attempt: Path, tmp_path: Path, plant: Callable[[Path, Path], None], says: str
) -> None:
    folder, elsewhere = private_folder(node), tmp_path / "elsewhere"
    plant(folder, elsewhere)
    with pytest.raises(SiteError, match=says) as caught:
        copied(image, str(node), SHA, attempt)
    assert str(folder) in str(caught.value) and "container.stage" in str(caught.value)
    assert not elsewhere.exists() or not list(elsewhere.iterdir()), "nothing may be written through a link"


def test_a_folder_that_others_can_rename_is_refused(image: Path, node: Path, attempt: Path) -> None:
    node.chmod(0o777)
    with pytest.raises(SiteError, match=r"other users can write to this folder .*container\.stage"):
        copied(image, str(node), SHA, attempt)


@pytest.mark.parametrize("name", ["lock", "json", "sif", "partial"])
def test_a_planted_link_leads_nowhere(image: Path, node: Path, attempt: Path, tmp_path: Path, name: str) -> None:
    """As another version, or the user's own mistake, may have left one inside the folder."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    copy = place(str(node), SHA)
    copy.parent.mkdir(mode=0o700)
    copy.with_suffix(f".{name}").symlink_to(precious)
    if name == "lock":
        with pytest.raises(SiteError, match=r"lock: the image cannot be staged here: this is a symbolic link"):
            copied(image, str(node), SHA, attempt)
    else:
        found = copied(image, str(node), SHA, attempt)
        assert not found.is_symlink() and found.read_bytes() == CONTENT
    assert precious.read_bytes() == b"mine"


@pytest.mark.parametrize("wrong", [b"evil", CONTENT[:-1], b""])
def test_a_wrong_copy_is_made_again(image: Path, node: Path, attempt: Path, wrong: bytes) -> None:
    copy = copied(image, str(node), SHA, attempt)
    copy.write_bytes(wrong)
    assert copied(image, str(node), SHA, attempt).read_bytes() == CONTENT


def test_a_changed_copy_is_found_even_with_its_old_time(image: Path, node: Path, attempt: Path) -> None:
    copy = copied(image, str(node), SHA, attempt)
    before = copy.stat()
    copy.write_bytes(b"evil!" * 1000)
    os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert copy.stat().st_mtime_ns == before.st_mtime_ns and copy.stat().st_size == before.st_size
    assert copied(image, str(node), SHA, attempt).read_bytes() == CONTENT


def test_a_copy_is_read_once_in_an_attempt_and_again_in_the_next(image: Path, node: Path, attempt: Path) -> None:
    """A record that was made to fit shows when the copy is read: only where no record fits."""
    copy = copied(image, str(node), SHA, attempt)
    copy.write_bytes(b"evil")
    copy.with_suffix(".json").write_text(json.dumps(stage._identity(copy, attempt)))
    assert copied(image, str(node), SHA, attempt).read_bytes() == b"evil", "it is not to be read by every rank"
    assert copied(image, str(node), SHA, attempt.with_name("2")).read_bytes() == CONTENT


@pytest.mark.parametrize("text", ["", "[", "null", "[" * 100_000, "\udce9"])
def test_a_damaged_record_does_not_count(image: Path, node: Path, attempt: Path, text: str) -> None:
    copy = copied(image, str(node), SHA, attempt)
    copy.write_bytes(b"evil")
    copy.with_suffix(".json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert copied(image, str(node), SHA, attempt).read_bytes() == CONTENT


def test_a_changed_image_ends_the_attempt_and_leaves_nothing(image: Path, node: Path, attempt: Path) -> None:
    image.write_bytes(b"another image")
    with pytest.raises(SiteError, match=f"its SHA-256 is {'[0-9a-f]' * 64}, and was {SHA} .*--new-image"):
        copied(image, str(node), SHA, attempt)
    assert [path.suffix for path in private_folder(node).iterdir()] == [".lock"]


def test_what_was_sent_is_taken_only_with_the_right_checksum(image: Path, node: Path, attempt: Path) -> None:
    copy = place(str(node), SHA)
    copy.parent.mkdir(mode=0o700)
    sent(copy, attempt).write_bytes(CONTENT)
    gone = image.with_name("gone.sif")
    assert copied(gone, str(node), SHA, attempt).read_bytes() == CONTENT, "it is to be taken, not copied again"
    assert not sent(copy, attempt).exists()
    second = attempt.with_name("2")
    sent(copy, second).write_bytes(b"evil")
    assert copied(image, str(node), SHA, second).read_bytes() == CONTENT
    assert not sent(copy, second).exists()


def test_what_killed_jobs_left_is_removed(image: Path, node: Path, attempt: Path) -> None:
    copy = place(str(node), SHA)
    copy.parent.mkdir(mode=0o700)
    old, new = sent(copy, attempt.with_name("7")), sent(copy, attempt.with_name("8"))
    for path in (old, new):
        path.write_bytes(b"part")
    os.utime(old, (1, 1))
    copied(image, str(node), SHA, attempt)
    assert not old.exists() and new.exists(), "what is being sent to another job of this user stays"


def test_ranks_at_once_make_one_copy(image: Path, node: Path, attempt: Path) -> None:
    inodes: list[int] = []
    ranks = [
        threading.Thread(target=lambda: inodes.append(copied(image, str(node), SHA, attempt).stat().st_ino))
        for _ in range(8)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert len(inodes) == 8 and len(set(inodes)) == 1


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_PLACE", raising=False)
    with pytest.raises(SiteError, match=r"'container.stage' '\$NO_SUCH_PLACE/x' names a variable"):
        place("$NO_SUCH_PLACE/x", SHA)


def test_a_node_is_made_ready_by_our_own_code(node: Path, attempt: Path, tmp_path: Path) -> None:
    """As srun starts it, in a working directory where somebody has put a module of the same name."""
    hostile = tmp_path / "cwd"
    (hostile / "orchestrator").mkdir(parents=True)
    (hostile / "orchestrator" / "__init__.py").write_text("open('pwned', 'w')")
    left = sent(place(str(node), SHA), attempt)
    left.parent.mkdir(mode=0o700)
    left.write_bytes(b"of the same attempt, put back in the queue")
    command = process.module(sys.executable, "torusrun.orchestrator.job.image.stage", str(node), SHA, attempt)
    said = process.run(command, timeout_s=30, cwd=hostile)
    assert said.exit_code == 0, said.stderr
    assert mode(private_folder(node)) == 0o700 and not left.exists() and not (hostile / "pwned").exists()
    private_folder(node).chmod(0o777)
    said = process.run(command, timeout_s=30, cwd=hostile)
    assert said.exit_code == 3 and "open to others" in said.stderr and "Traceback" not in said.stderr


def test_a_rank_pays_little_for_it() -> None:
    program = "import sys, torusrun.orchestrator.job.image.contained; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert not {"yaml", "jinja2", "spython", "submitit"} & set(said.stdout.split())
