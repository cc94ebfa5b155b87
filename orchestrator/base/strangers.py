"""Whether another user could change what a folder holds.

The text of this file is sent to a login node before torusrun is there, so it stands alone, for any Python from 3.6 on.
"""

import errno
import os
import stat

ROOT = 0
MOST_LINKS = 40  # as the kernel follows


def objection(folder: str, only_above: bool = False) -> str:
    """How a stranger could put something into `folder`, or another folder into its place; '' if nobody can.

    The folder has to be its user's or the system's, and writable by nobody else unless it is sticky, as /tmp is. So
    have the folders above it, but the members of a group of the user may share those (docs/concepts/security.md). With
    `only_above` the folder is one of these. Raises OSError.
    """
    for link in _links(folder):
        reason = objection(os.path.dirname(link), True) or _objection_to_link(link)
        if reason:
            return reason
    place, trusted = os.path.realpath(folder), not only_above
    while True:
        found = os.stat(place)
        if not stat.S_ISDIR(found.st_mode):
            return place + ": this is no folder"
        shared = not trusted and found.st_mode & stat.S_IWGRP and found.st_gid in [os.getegid()] + os.getgroups()
        if _is_stranger(found.st_uid) and not shared:
            reason = f"this folder belongs to user {found.st_uid}, who can replace what lies in it"
            return f"{place}: {reason}; name one of your own"
        others = stat.S_IWOTH | (stat.S_IWGRP if trusted else 0)
        if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
            mode = f"{stat.S_IMODE(found.st_mode):04o}"
            reason = f"others may write into this folder (mode {mode}), and so replace what torusrun keeps there"
            return f"{place}: {reason}; `chmod go-w` it, or name another folder"
        if place == os.path.dirname(place):
            return ""
        place, trusted = os.path.dirname(place), False


def _links(folder: str) -> "list[str]":
    """The symbolic links on the way to a folder, by their names in real folders. Raises OSError for too many."""
    place, found = os.sep, []  # type: str, list[str]
    left = (folder if os.path.isabs(folder) else os.path.join(os.getcwd(), folder)).split(os.sep)
    while left:
        path = os.path.normpath(os.path.join(place, left.pop(0)))
        if not os.path.islink(path):
            place = path
            continue
        if len(found) == MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        found.append(path)
        target = os.readlink(path)
        left = target.split(os.sep) + left
        place = os.sep if os.path.isabs(target) else place
    return found


def _objection_to_link(link: str) -> str:
    """How a stranger could lead a link elsewhere, beside the owners of the folders above it; '' if nobody can."""
    owner = os.lstat(link).st_uid
    if _is_stranger(owner) and os.stat(os.path.dirname(link)).st_mode & stat.S_IWOTH:
        return f"{link}: this link belongs to user {owner}, who can lead it elsewhere; name a folder of your own"
    return ""


def _is_stranger(user: int) -> bool:
    return user not in (os.geteuid(), ROOT, _unmapped())


def _unmapped() -> int:
    """The number of the system's folders in a user namespace (a container) without the system's root; else root's."""
    try:
        with open("/proc/self/uid_map") as ranges, open("/proc/sys/kernel/overflowuid") as number:
            return ROOT if ranges.read().split() == ["0", "0", "4294967295"] else int(number.read())
    except (OSError, ValueError):
        return ROOT
