"""The copies on a node's own disk: tried as a stranger would who can write into the folder above; who makes room."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.test_roles import refused
from torusrun.orchestrator.base.errors import ImageError, SiteError
from torusrun.orchestrator.job.staging import node_folder
from torusrun.orchestrator.job.staging.chain import Chain
from torusrun.orchestrator.job.staging.node_folder import NodeFolder, place
from torusrun.orchestrator.job.staging.of_host import OfHost
from torusrun.orchestrator.job.staging.order import StageEntry, StageOrder

CONTENT = b"image" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()
STRANGER = 4242
AS_ROOT = pytest.mark.needs("users")


def copied(image: Path, node: str, sha256: str, attempt: Path) -> Path:
    """Stage an image, or another source for the SHA-256 '', on one host; its copy."""
    order = StageOrder("r", node, (StageEntry("" if sha256 else "x", str(image), sha256),), "")
    chain = Chain(0, ["n"], lambda index: attempt, key=b"", interface=None, shown=lambda name, written, to_write: None)
    folder = place(node, os.environ)
    with ExitStack() as held, chain:
        OfHost(order, folder, str(attempt), chain, held).run()
    return Path(json.loads((folder / "run-r" / "paths.json").read_text())[str(image)])


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
    image.chmod(0o600)
    copy = copied(image, str(node), SHA, attempt)
    assert copy.read_bytes() == CONTENT and copy == private_folder(node) / SHA[:16]
    assert mode(copy.parent) == 0o700 and {mode(path) for path in copy.parent.iterdir()} == {0o600, 0o700}
    assert {path.name for path in copy.parent.iterdir()} == {copy.name, f"{copy.name}.json", "lock", "run-r"}


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
    assert str(folder) in str(caught.value) and "'stage' of the site" in str(caught.value)
    assert not elsewhere.exists() or not list(elsewhere.iterdir()), "nothing may be written through a link"


def test_a_folder_that_others_can_rename_is_refused(image: Path, node: Path, attempt: Path) -> None:
    node.chmod(0o777)
    with pytest.raises(SiteError, match=r"other users can write to this folder .*'stage' of the site"):
        copied(image, str(node), SHA, attempt)


@pytest.mark.parametrize("name", ["lock", SHA[:16], f"{SHA[:16]}.json", f".{SHA[:16]}.x"])
def test_a_planted_link_leads_nowhere(image: Path, node: Path, attempt: Path, tmp_path: Path, name: str) -> None:
    """As another version, or the user's own mistake, may have left one inside the folder."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    private_folder(node).mkdir(mode=0o700)
    (private_folder(node) / name).symlink_to(precious)
    if name == "lock":
        with pytest.raises(SiteError, match=r"lock on n: .*this is a symbolic link"):
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
    """A record that was made to fit shows when the copy is read."""
    copy = copied(image, str(node), SHA, attempt)
    copy.write_bytes(b"evil")
    record = {"facts": node_folder._facts(copy), "attempt": str(attempt)}
    copy.with_name(f"{copy.name}.json").write_text(json.dumps(record))
    assert copied(image, str(node), SHA, attempt).read_bytes() == b"evil"
    assert copied(image, str(node), SHA, attempt.with_name("2")).read_bytes() == CONTENT


@pytest.mark.parametrize("text", ["", "[", "null", "[" * 100_000, "\udce9"])
def test_a_damaged_record_does_not_count(image: Path, node: Path, attempt: Path, text: str) -> None:
    copy = copied(image, str(node), SHA, attempt)
    copy.write_bytes(b"evil")
    copy.with_name(f"{copy.name}.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert copied(image, str(node), SHA, attempt).read_bytes() == CONTENT


def test_a_changed_image_ends_the_attempt_and_leaves_nothing(image: Path, node: Path, attempt: Path) -> None:
    image.write_bytes(b"another image")
    with pytest.raises(ImageError, match=f"its SHA-256 is {'[0-9a-f]' * 64}, and was {SHA} .*--new-image"):
        copied(image, str(node), SHA, attempt)
    assert [path.name for path in private_folder(node).iterdir()] == ["lock"]


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(SiteError, match=r"'stage' '\$NO_SUCH_PLACE/x' names a variable"):
        place("$NO_SUCH_PLACE/x", {})
    assert place("", {"TORUSRUN_SCRATCH": "/own"}).parent == Path("/own") and place("", {}).parent == Path("/tmp")


class Usage(NamedTuple):
    free: int


@pytest.fixture
def three(node: Path, tmp_path: Path, attempt: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Copies on a disk with room for three, the longest unread first; a folder of a run that was never read."""
    monkeypatch.setattr(node_folder, "UNREAD_S", float("inf"))
    made = {}
    for number, name in enumerate("abc"):
        (tmp_path / name).write_bytes(CONTENT)
        made[name] = copied(tmp_path / name, str(node), "", attempt)
        os.utime(made[name].with_name(f"{made[name].name}.json"), (10**9 + number, 10**9 + number))

    def usage(path: Path) -> Usage:
        kept = sum(8192 for path in private_folder(node).glob("[0-9a-f]*") if not path.suffix)
        return Usage(3 * 8192 - kept + node_folder.SPARE_BYTES)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    return made


def test_the_copy_that_is_longest_unread_makes_room_unless_it_is_read(
    three: dict[str, Path], node: Path, tmp_path: Path, attempt: Path
) -> None:
    (tmp_path / "new").write_bytes(CONTENT)
    with ExitStack() as held:
        node_folder.hold(three["a"], held)
        new = copied(tmp_path / "new", str(node), "", attempt)
        assert [path.exists() for path in (*three.values(), new)] == [True, False, True, True]
        (tmp_path / "large").write_bytes(CONTENT * 6)
        with pytest.raises(SiteError, match="has 1.1 GB free, and the copy needs 0.0 GB and 1.1 GB to spare"):
            copied(tmp_path / "large", str(node), "", attempt)
        assert three["a"].exists(), "what is read stays, although nothing else has room"


def test_what_nobody_has_read_for_a_day_goes(node: Path, image: Path, tmp_path: Path, attempt: Path) -> None:
    old = copied(image, str(node), SHA, attempt)
    os.utime(old.with_name(f"{old.name}.json"), (1, 1))
    (tmp_path / "new").write_bytes(b"new")
    new = copied(tmp_path / "new", str(node), "", attempt)
    assert new.exists() and not old.exists() and not old.with_name(f"{old.name}.json").exists()


def test_what_killed_processes_left_goes_and_what_is_copied_now_stays(node: Path) -> None:
    with ExitStack() as held:
        kept = NodeFolder(private_folder(node), held)
        left = private_folder(node) / ".0123456789abcdef.left"
        left.mkdir()
        with kept.partial("0123456789abcdef", 0) as partial:
            NodeFolder(private_folder(node), held)
            assert partial.exists() and not left.exists()
        assert not partial.exists()


def test_a_venv_runs_from_its_copy(node: Path, tmp_path: Path, attempt: Path) -> None:
    source = tmp_path / "shared" / "venv"
    made = [sys.executable, "-m", "venv", "--without-pip", str(source)]
    subprocess.run(made, check=True, timeout=300)
    beside = f"{source}-of-another/bin/python"
    (source / "bin" / "tool").write_text(f"#!{source}/bin/python\nimport sys\nprint(sys.prefix)  # {beside}\n")
    (source / "bin" / "tool").chmod(0o755)
    copy = copied(source, str(node), "", attempt)
    source.rename(source.with_name("gone"))
    said = subprocess.run([copy / "bin" / "tool"], capture_output=True, text=True, timeout=300, check=True)
    assert said.stdout == f"{copy}\n" and beside in (copy / "bin" / "tool").read_text()
    activated = f". {copy}/bin/activate && echo $VIRTUAL_ENV"
    said = subprocess.run(["bash", "-c", activated], capture_output=True, text=True, timeout=300, check=True)
    assert said.stdout == f"{copy}\n"


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["a/paths.json"], "'paths.json' is the name of a file of torusrun's own there; write NAME=PATH"),
        (["a/.attempt"], "'.attempt' is the name of a file of torusrun's own there"),
        (["a/x", "b/x"], "'x' is the name of two of them"),
    ],
)
def test_a_name_in_the_folder_of_a_run_is_free(tmp_path: Path, paths: list[str], words: str) -> None:
    for path in paths:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    assert words in refused(tmp_path, f"command: [x]\nstage: [{', '.join(str(tmp_path / path) for path in paths)}]\n")
