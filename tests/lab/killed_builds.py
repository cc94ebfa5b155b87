"""A real build that a signal ends at some moment, and what is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import until

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
KEPT = {".log", ".lock", ".sif", ".json", ".packages"}  # what a build may leave; an image is verified by itself
# Work in every phase of a build: processes of several groups in %post, and something to pack.
SLOW = "post: |\n  sleep 1 &\n  setsid sleep 1 &\n  head -c 20000000 /dev/urandom > /random\n  wait\n"
PATIENCE_S = 60


@dataclass(frozen=True)
class Killed:
    """The end of a build by a signal."""

    number: signal.Signals
    after_s: float
    code: int
    gone_s: float  # from the signal until its last process had ended; after SIGKILL until itself had
    left: tuple[str, ...]  # in the folder of images and the temporary one, before the next command

    def __str__(self) -> str:
        left = " ".join(self.left) or "nothing"
        return (
            f"{self.number.name} after {self.after_s:.2f} s: code {self.code}, gone in {self.gone_s:.2f} s, left {left}"
        )


def processes(images: Path) -> list[int]:
    """The processes, of whichever user, that work for builds in this folder of images."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            said = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        except OSError:  # it has ended
            continue
        if os.fsencode(images) in said and int(place.name) != os.getpid():
            found.append(int(place.name))
    return found


def left(*folders: Path) -> tuple[str, ...]:
    """The names of what ended builds have left in the folders of images and of temporary files."""
    there = [path for folder in folders if folder.exists() for path in folder.iterdir()]
    return tuple(sorted(path.name for path in there if path.suffix not in KEPT or path.name.startswith(".")))


def kill(
    start: Callable[[], subprocess.Popen[str]], number: signal.Signals, after_s: float, images: Path, temporary: Path
) -> Killed:
    """Start a build and send `number` to it, and to nothing else, when `after_s` have passed.

    Raises AssertionError if one of its processes is still there after a minute; after SIGKILL some may stay until the
    next build.
    """
    build = start()
    time.sleep(after_s)  # the moment is the subject of the test
    sent_s = time.monotonic()
    build.send_signal(number)
    code = build.wait(timeout=PATIENCE_S)
    if number != signal.SIGKILL:
        what = f"the end of {processes(images)}, which build {build.pid} started"
        until(lambda: not processes(images), what, PATIENCE_S)
    return Killed(number, after_s, code, time.monotonic() - sent_s, left(images, temporary))
