"""The errors that are shown to users, each with its exit code: it says who must act."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

DONE = 0
RUN_FAILED = 1
USER_MISTAKE = 2
SITE_FAILED = 3


class TorusrunError(Exception):
    """An error that is shown as its message alone, without a traceback."""

    exit_code = SITE_FAILED


class UserError(TorusrunError):
    """A mistake in the user's request; the message says where it is and how to correct it."""

    exit_code = USER_MISTAKE


class SiteError(TorusrunError):
    """The scheduler, the file system or another part of the site failed."""


class ImageError(SiteError):
    """An image cannot be used: it cannot be copied or mounted, or it is not the run's."""


class CutOffError(SiteError):
    """Another host of the attempt is gone, or cannot do its part: its own record says why."""


class StoppedBeforeStart(Exception):
    """A rank was asked to stop while it waited for other roles, or for what is staged."""


@contextmanager
def explained(what: str, kind: type[TorusrunError] = SiteError) -> Iterator[None]:
    """Turn an OSError in the block into an error of this kind: `what` (the failed action) and the reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror}") from None
