"""Reports of defects: an unexpected error gives its user one line; the details are in a file."""

from __future__ import annotations

import os
import platform
import tempfile
import time
import traceback
from collections.abc import Sequence

from torusrun.orchestrator.base.version import __version__

WHERE_TO = "the issue tracker of torusrun"


def report(error: BaseException, words: Sequence[str]) -> str:
    """Write the details of `error` into a file that only the user can read; the message for the user.

    `words` name the verb. The file has no command line and no environment: they can hold secrets.
    """
    from torusrun.orchestrator.base.private import plain

    line = plain(f"{type(error).__name__}: {error}"[:200])
    details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    versions = f"torusrun {__version__}, Python {platform.python_version()}, {platform.platform()}"
    text = f"{versions}\n{' '.join(words)}\n\n{details}"
    try:
        descriptor, path = tempfile.mkstemp(prefix=f"torusrun-defect-{time.strftime('%Y%m%d-%H%M%S')}-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as full:
        return f"this is a defect of torusrun ({line}); the details could not be written: {full.strerror}"
    return f"this is a defect of torusrun ({line}); please send {path} to {WHERE_TO}"
