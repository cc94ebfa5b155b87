"""Whether another user could change the content of a folder.

The text of this file is sent to a login node before torusrun is there. It stands alone, for Python 3.6 and later.
"""

import errno
import os
import stat
import struct

ROOT = 0
ACCESS_LIST = "system.posix_acl_access"  # linux/posix_acl_xattr.h: a version, then (tag, permissions, id) of each entry
NAMED_USER, NAMED_GROUP, MASK = 0x02, 0x08, 0x10
WRITE = 2
MOST_LINKS = 40  # as the kernel follows


def objection(folder: str, only_above: bool = False) -> str:
    """How a stranger could put a file into `folder`, or replace the folder; '' if that is impossible.

    The folder must belong to its user or the system, and only its owner may write it, unless it is sticky, as /tmp is.
    The same holds for its parents, but a group of the user may share those (docs/concepts/security.md). With
    `only_above` the folder is one of these parents. Raises OSError.
    """
    for link in _links(folder):
        reason = objection(os.path.dirname(link), True) or _objection_to_link(link)
        if reason:
            return reason
    place, trusted = os.path.realpath(folder), not only_above
    while True:
        status = os.stat(place)
        if not stat.S_ISDIR(status.st_mode):
            return place + ": this is not a folder"
        shared = not trusted and status.st_mode & stat.S_IWGRP and status.st_gid in [os.getegid()] + os.getgroups()
        if is_stranger(status.st_uid) and not shared:
            reason = f"this folder belongs to user {status.st_uid}, who can replace its files"
            return f"{place}: {reason}; name one of your own"
        mine = status.st_uid == os.geteuid()
        others = stat.S_IWOTH | (stat.S_IWGRP if trusted else 0)
        if status.st_mode & others and not status.st_mode & stat.S_ISVTX:
            mode = f"{stat.S_IMODE(status.st_mode):04o}"
            reason = f"other users can write to this folder (mode {mode}) and replace torusrun's files in it"
            return f"{place}: {reason}; {'`chmod go-w` it, or ' if mine else ''}name another folder"
        listed = "" if status.st_mode & stat.S_ISVTX else _listed_writer(place)
        if listed:
            reason = f"its access list lets {listed} write to this folder and replace torusrun's files in it"
            return f"{place}: {reason}; {'`setfacl -b` it, or ' if mine else ''}name another folder"
        if place == os.path.dirname(place):
            return ""
        place, trusted = os.path.dirname(place), False


def _links(folder: str) -> "list[str]":
    """The symbolic links on the way to a folder, by their names in real folders. Raises OSError if too many."""
    place, links = os.sep, []  # type: str, list[str]
    left = (folder if os.path.isabs(folder) else os.path.join(os.getcwd(), folder)).split(os.sep)
    while left:
        path = os.path.normpath(os.path.join(place, left.pop(0)))
        if not os.path.islink(path):
            place = path
            continue
        if len(links) == MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        links.append(path)
        target = os.readlink(path)
        left = target.split(os.sep) + left
        place = os.sep if os.path.isabs(target) else place
    return links


def _objection_to_link(link: str) -> str:
    """How a stranger could change a link; '' if that is impossible. The parents of the link are checked elsewhere."""
    owner = os.lstat(link).st_uid
    if is_stranger(owner) and os.stat(os.path.dirname(link)).st_mode & stat.S_IWOTH:
        return f"{link}: this link belongs to user {owner}, who can change its target; name a folder of your own"
    return ""


def _listed_writer(folder: str) -> str:
    """The first user or group in the access list of a folder that may write and is a stranger; '' without any."""
    try:
        content = os.getxattr(folder, ACCESS_LIST)[4:]
    except (AttributeError, OSError):  # another system, or no list
        return ""
    entries = list(struct.iter_unpack("<HHI", content[: len(content) // 8 * 8]))
    mask = next((allowed for tag, allowed, _ in entries if tag == MASK), WRITE)
    for tag, allowed, number in entries:
        if allowed & mask & WRITE and tag == NAMED_USER and is_stranger(number):
            return f"user {number}"
        if allowed & mask & WRITE and tag == NAMED_GROUP and number not in [os.getegid()] + os.getgroups():
            return f"group {number}"
    return ""


def is_stranger(user: int) -> bool:
    """Whether a user is neither that of this process nor the system."""
    return user not in (os.geteuid(), ROOT) and user != _unmapped()


def _unmapped() -> int:
    """The owner of the system's folders in a user namespace (a container) without the system's root; otherwise root."""
    try:
        with open("/proc/self/uid_map") as ranges, open("/proc/sys/kernel/overflowuid") as number:
            return ROOT if ranges.read().split() == ["0", "0", "4294967295"] else int(number.read())
    except (OSError, ValueError):
        return ROOT
