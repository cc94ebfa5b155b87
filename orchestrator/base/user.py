"""The name of the user of this process."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """The user's name from the variables or the password database; the number of the user if neither has one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # OSError since Python 3.13
        return str(os.getuid())
