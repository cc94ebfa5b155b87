"""Folders and files that strangers may have touched."""

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.verbs import Patch
from torusrun.orchestrator.base import private, strangers
from torusrun.orchestrator.base.errors import SiteError

STRANGER = 4321


def test_a_folder_is_made_for_its_user_alone_and_one_for_the_group_keeps_the_group_that_it_inherits(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        private.make(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]
    (tmp_path / "project").mkdir()
    (tmp_path / "project").chmod(0o2750)
    private.make(tmp_path / "project" / "a" / "runs", 0o027)
    for folder in (tmp_path / "project" / "a", tmp_path / "project" / "a" / "runs"):
        assert folder.stat().st_mode & 0o7777 == 0o2750


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_folder_that_others_may_write_is_refused_with_the_way_to_mend_it(tmp_path: Path, mode: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(SiteError, match=rf"open: other users can write .*mode {mode:04o}.*chmod go-w"):
        private.make(tmp_path / "open")
    (tmp_path / "open").chmod(mode | 0o1000)
    private.make(tmp_path / "open")  # sticky, as /tmp: nobody can rename what is another's


@pytest.mark.parametrize(
    ("place", "mend"),
    [
        (".local/state", "; set XDG_STATE_HOME to a folder that you can write"),
        (".config", "; set XDG_CONFIG_HOME "),
        ("x", "$"),
    ],
)
def test_a_folder_of_a_home_that_cannot_be_written_may_be_elsewhere(home: Path, place: str, mend: str) -> None:
    (home / place).parent.mkdir(exist_ok=True)
    (home / place).write_text("a file in the place of a folder")
    for make in (private.make, private.check_makable):
        with pytest.raises(SiteError, match=f"this folder cannot be made: Not a directory{mend}"):
            make(home / place / "torusrun" / "runs")


@pytest.mark.needs("users")
def test_a_folder_of_another_user_is_not_to_be_closed(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    os.chown(tmp_path / "open", STRANGER, -1)
    with pytest.raises(SiteError) as refused:
        private.make(tmp_path / "open" / "mine")
    assert "chmod" not in str(refused.value)


def test_a_folder_below_one_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(SiteError, match="other users can write to this folder"):
        private.make(tmp_path / "open" / "mine")


@pytest.mark.needs("users")
def test_a_strangers_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "his").mkdir()
    os.chown(tmp_path / "his", STRANGER, STRANGER)
    assert not private.is_mine(tmp_path / "his")
    with pytest.raises(SiteError, match=f"belongs to user {STRANGER}"):
        private.make(tmp_path / "his")


@pytest.mark.needs("users")
def test_a_folder_below_a_strangers_is_refused_unless_it_is_the_users_group_that_shares_it(tmp_path: Path) -> None:
    """The owner of a folder can put another one into the place of each folder in it, even if it is sticky."""
    his = tmp_path / "his"
    (his / "mine").mkdir(parents=True)
    os.chown(his, STRANGER, STRANGER)
    why = f"his: this folder belongs to user {STRANGER}, who can replace its files"
    for mode in (0o755, 0o1777, 0o2775):
        his.chmod(mode)
        for check in (private.check, private.make, private.check_makable):
            with pytest.raises(SiteError, match=why):
                check(his / "mine")
        with pytest.raises(SiteError, match=why):
            private.check_makable(his / "new" / "runs")
    os.chown(his, STRANGER, os.getegid())
    his.chmod(0o2770)
    private.check(his / "mine")


def test_the_systems_folders_are_trusted_in_a_user_namespace_that_has_no_root(tmp_path: Path) -> None:
    """As in a container: there everything that is the system's belongs to the number for users that are not there."""
    program = "import os, sys; exec(sys.stdin.read()); sys.exit(os.stat('/').st_uid == 0 or objection('/tmp') or 0)"
    python = os.path.realpath(sys.executable)  # that of a virtual environment below /root is closed to others
    inside = ["unshare", "--user", "--map-current-user", python, "-c", program]
    as_user = ["setpriv", "--reuid", str(STRANGER), "--regid", str(STRANGER), "--clear-groups"]
    as_user = as_user if os.geteuid() == 0 else []
    if subprocess.run([*as_user, *inside[:-1], ""], capture_output=True, timeout=300).returncode:
        pytest.skip("no user namespaces here, or this Python is closed to other users")
    said = subprocess.run(
        [*as_user, *inside], input=Path(strangers.__file__).read_text(), capture_output=True, text=True, timeout=300
    )
    assert said.returncode == 0, said.stderr


def test_nothing_but_a_regular_file_is_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    assert private.read_bytes(tmp_path / "file", 4) == b"text"
    for name, why in (("link", "not followed"), ("loop", "not followed"), ("fifo", "not a regular file"),
                      ("folder", "not a regular file")):  # fmt: skip
        with pytest.raises(OSError, match=why):
            private.read_bytes(tmp_path / name, 100)
    with pytest.raises(OSError, match="not a regular file"):
        private.open_regular(Path("/dev/zero"))
    with pytest.raises(OSError, match="larger than 3 bytes"):
        private.read_bytes(tmp_path / "file", 3)


@pytest.mark.needs("users")
def test_a_folder_behind_a_strangers_link_is_refused(tmp_path: Path) -> None:
    """The owner of a link, and of the folder that it lies in, can lead it to another folder at any time."""
    mine, his, shared = (tmp_path / name for name in ("mine", "his", "shared"))
    for folder in (mine, his, shared):
        folder.mkdir(mode=0o755)
    (tmp_path / "own").symlink_to("mine")
    (his / "link").symlink_to("../own")
    (shared / "link").symlink_to(mine)
    shared.chmod(0o1777)
    private.check(tmp_path / "own" / "")
    private.check(shared / "link")
    os.chown(his, STRANGER, STRANGER)
    os.chown(shared / "link", STRANGER, STRANGER, follow_symlinks=False)
    for path, why in ((his / "link", "his: this folder"), (shared / "link", "shared/link: this link")):
        for check in (private.check, private.make, private.check_makable):
            with pytest.raises(SiteError, match=f"{why} belongs to user {STRANGER}"):
                check(path)
        with pytest.raises(SiteError, match=f"{why} belongs to user {STRANGER}"):
            private.check_makable(path / "new")


def test_links_without_an_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SiteError, match="loop: this folder cannot be"):
        private.check(tmp_path / "loop")


def test_a_link_that_is_put_in_the_way_of_a_new_folder_changes_no_mode(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "secret").mkdir(mode=0o700)
    make = Path.mkdir

    def just_before(path: Path, *how: Any, **named: Any) -> None:
        path.symlink_to(tmp_path / "secret")
        make(path, *how, **named)

    monkeypatch.setattr(Path, "mkdir", just_before)
    private.make(tmp_path / "runs", 0o022)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o700


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """A POSIX access list as the kernel takes it: the owner may do all, these (tag, permissions, id), the mask rwx."""
    nobody = 0xFFFFFFFF
    listed = [(1, 7, nobody), *entries, (4, 0, nobody), (0x10, 7, nobody), (0x20, 0, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in sorted(listed))


NAMED_USER, NAMED_GROUP = (2, 7, STRANGER), (8, 7, STRANGER)


@pytest.mark.needs("lists")
@pytest.mark.parametrize(
    ("entry", "who"), [(NAMED_USER, f"user {STRANGER}"), (NAMED_GROUP, f"group {STRANGER}"), ((2, 5, STRANGER), ""),
                       ((2, 7, os.geteuid()), ""), ((8, 7, os.getegid()), "")]
)  # fmt: skip
def test_a_folder_above_that_an_access_list_opens_to_a_stranger_is_refused(
    tmp_path: Path, entry: tuple[int, int, int], who: str
) -> None:
    (tmp_path / "open" / "runs").mkdir(parents=True)
    os.setxattr(tmp_path / "open", "system.posix_acl_access", access_list(entry))
    if not who:
        return private.check(tmp_path / "open" / "runs")
    with pytest.raises(SiteError, match=f"open: its access list lets {who} write.*`setfacl -b` it"):
        private.check(tmp_path / "open" / "runs")
    (tmp_path / "open").chmod(0o1770)
    private.check(tmp_path / "open" / "runs")  # sticky, as /tmp


@pytest.mark.needs("lists")
def test_folders_do_not_inherit_an_access_list(tmp_path: Path) -> None:
    """The umask has no effect in a folder with a default list, and modes give its users rights again."""
    os.setxattr(tmp_path, "system.posix_acl_default", access_list(NAMED_USER))
    private.make(tmp_path / "a" / "runs", 0o027)
    with private.umask(0o027):
        private.new(tmp_path / "a" / "runs" / "run", 0o027)
        (tmp_path / "a" / "runs" / "run" / "log").touch()
    made = [tmp_path / "a", *(tmp_path / "a").rglob("*")]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o750, 0o750, 0o750, 0o640]
    assert not [name for path in made for name in os.listxattr(path) if "posix_acl" in name]
