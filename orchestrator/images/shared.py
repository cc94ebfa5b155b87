"""Whether the nodes of a cluster see a file, judged by its file system."""

from __future__ import annotations

import os
import re
from pathlib import Path

# Each node has its own copy of these folders.
NODES_OWN = ("/tmp", "/var/tmp", "/dev/shm", "/run")
LOCAL = {
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "ramfs", "overlay", "squashfs", "f2fs", "jfs", "reiserfs",
    "vfat", "exfat", "bcachefs",
}  # fmt: skip
SHARED = {
    "nfs", "nfs3", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "cifs", "smb3", "glusterfs", "afs",
    "panfs", "pvfs2", "orangefs", "wekafs", "daos", "quobyte", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph",
    "fuse.beegfs", "fuse.cvmfs", "cvmfs2", "fuse.quobyte", "vast", "scoutfs", "gfs2", "ocfs2",
}  # fmt: skip
MOUNTINFO = Path("/proc/self/mountinfo")


def file_system(path: Path, mountinfo: str) -> tuple[str, str]:
    """(mount point, type) of the file system that holds `path`, from the text of /proc/PID/mountinfo; ('', '') if none.

    Of several mounts on a place the last counts.
    """
    mounted, kind = "", ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, names = before.split(), after.split()
        if len(fields) < 5 or not names:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        if path.is_relative_to(point) and len(point) >= len(mounted):
            mounted, kind = point, names[0]
    return mounted, kind


def kind_of(folder: Path) -> str:
    """The type of the file system that `folder` is on, or will be on; '' if unknown."""
    return file_system(Path(os.path.realpath(folder)), MOUNTINFO.read_text(errors="surrogateescape"))[1]


def seen_by_others(kind: str) -> bool | None:
    """Whether other machines see a file system of this type; None if its type does not show it."""
    return True if kind in SHARED else False if kind in LOCAL else None


def nodes_own(path: Path) -> str:
    """The folder that is different on each node, if `path` is in such a folder; else ''."""
    return next((folder for folder in NODES_OWN if path.is_relative_to(folder)), "")


def is_shared(path: Path, runs: Path, mountinfo: str | None = None) -> tuple[bool | None, str, str]:
    """(whether the nodes see the file, the folder that each node has its own copy of or '', the evidence).

    `runs` is the site's folder of runs, which all nodes see, and so they see other files of its file system. False may
    be wrong for a local file system, since this machine may export it to the nodes. None is unknown.
    """
    real, runs = Path(os.path.realpath(path)), Path(os.path.realpath(runs))
    text = MOUNTINFO.read_text(errors="surrogateescape") if mountinfo is None else mountinfo
    point, kind = file_system(real, text)
    evidence = f"{MOUNTINFO}: {real} lies on {kind or 'an unknown file system'} mounted at {point or '?'}"
    own = nodes_own(real)
    if kind in SHARED:
        return True, "", evidence
    if own and nodes_own(runs) != own:
        return False, own, evidence
    if file_system(runs, text) == (point, kind):
        return True, "", f"{evidence}, as the site's folder of runs"
    return (False if kind in LOCAL else None), "", evidence
