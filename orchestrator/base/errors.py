"""What can go wrong in words, with the exit code that says whose turn it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

DONE = 0
RUN_FAILED = 1
USER_MISTAKE = 2
SITE_FAILED = 3


class TorusrunError(Exception):
    """An error that is shown as its message alone, never as a traceback."""

    exit_code = SITE_FAILED


class UserError(TorusrunError):
    """What was asked for cannot be done as it is written; the message says where and how to mend it."""

    exit_code = USER_MISTAKE


class SiteError(TorusrunError):
    """The scheduler, the file system or another part of the site did not do its part."""

    exit_code = SITE_FAILED


@contextmanager
def explained(what: str, kind: type[TorusrunError] = SiteError) -> Iterator[None]:
    """Within, an OSError becomes an error of this kind: `what` cannot be done, and why."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror}") from None
