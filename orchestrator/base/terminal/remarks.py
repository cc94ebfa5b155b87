"""What a verb prints besides its result, on the standard error stream: remarks and progress. --quiet hides them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torusrun.orchestrator.base.terminal.plain import plain

LONG_S = 1.0  # then a user on a terminal learns what is being done

_quiet = False


def set_quiet(quiet: bool) -> None:
    """Hide remarks and progress from now on, or show them again."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    return _quiet


def draws() -> bool:
    """Whether progress may be drawn, as lines that change."""
    from torusrun.orchestrator.base.terminal.output import drawable  # imported late: it takes a tenth of the start

    return not _quiet and drawable(sys.stderr)


def say(text: str) -> None:
    """Print one remark, unless quiet."""
    if not _quiet:
        warn(text)


def warn(text: str) -> None:
    """Print one remark about a problem, which is never hidden."""
    print(f"torusrun: {plain(text)}", file=sys.stderr, flush=True)


def progress(line: str) -> None:
    """Print one line of progress as it is, unless quiet."""
    if not _quiet:
        print(line, file=sys.stderr, flush=True)


def printed(text: str) -> None:
    """Print a result that must not be lost, such as the id of a run; if it cannot be printed, a remark has it."""
    try:
        print(text, flush=True)
    except OSError:
        warn(f"this result could not be printed: {text}")
        raise


def result(value: str, sentence: str) -> None:
    """Print the result of a verb in a sentence; when quiet, the bare value, such as the id of a run."""
    print(value if _quiet else sentence, flush=True)


@contextmanager
def busy(what: str, after_s: float = LONG_S) -> Iterator[None]:
    """Show a user on a terminal what is being done, if the block takes longer than `after_s`."""
    if _quiet or not sys.stderr.isatty():
        yield
        return
    from threading import Timer  # imported late: most verbs end before

    timer = Timer(after_s, say, [f"{what} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
