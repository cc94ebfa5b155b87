"""Folders and files that strangers may have touched."""

import os
from pathlib import Path

import pytest

from orchestrator import private
from orchestrator.errors import SiteError

STRANGER = 4321


def test_a_folder_is_made_for_its_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        private.make(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]


def test_a_folder_for_the_group_keeps_the_group_that_it_inherits(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project").chmod(0o2750)
    private.make(tmp_path / "project" / "a" / "runs", 0o027)
    for folder in (tmp_path / "project" / "a", tmp_path / "project" / "a" / "runs"):
        assert folder.stat().st_mode & 0o7777 == 0o2750


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_folder_that_others_may_write_is_refused_with_the_way_to_mend_it(tmp_path: Path, mode: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(SiteError, match=rf"open: others may write .*mode {mode:04o}.*chmod go-w"):
        private.make(tmp_path / "open")
    (tmp_path / "open").chmod(mode | 0o1000)
    private.make(tmp_path / "open")  # sticky, as /tmp: nobody can rename what is another's


def test_a_folder_below_one_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(SiteError, match="others may write into this folder"):
        private.make(tmp_path / "open" / "mine")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_strangers_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "his").mkdir()
    os.chown(tmp_path / "his", STRANGER, STRANGER)
    assert not private.is_mine(tmp_path / "his")
    with pytest.raises(SiteError, match=f"belongs to user {STRANGER}"):
        private.make(tmp_path / "his")


def test_nothing_but_a_regular_file_is_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    assert private.read_bytes(tmp_path / "file", 4) == b"text"
    for name, why in (("link", "not followed"), ("loop", "not followed"), ("fifo", "no regular file"),
                      ("folder", "no regular file")):  # fmt: skip
        with pytest.raises(OSError, match=why):
            private.read_bytes(tmp_path / name, 100)
    with pytest.raises(OSError, match="no regular file"):
        private.open_regular(Path("/dev/zero"))
    with pytest.raises(OSError, match="larger than 3 bytes"):
        private.read_bytes(tmp_path / "file", 3)
