"""The user of this process and the user's groups, by the names that PBS knows."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd

from orchestrator.base.errors import SiteError


def name() -> str:
    """The user's name. Raises SiteError if there is none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise SiteError(f"user {os.geteuid()} has no name on this machine, and PBS knows its jobs by one") from None


def groups() -> list[str]:
    """The names of this user's groups. A group without a name here is left out: PBS has no name for it either."""
    found, user = [], pwd.getpwuid(os.geteuid())
    for number in os.getgrouplist(user.pw_name, user.pw_gid):
        with contextlib.suppress(KeyError):
            found.append(grp.getgrgid(number).gr_name)
    return found
