"""A program on a host of a Grid Engine job, between `qrsh -inherit` and the user.

`orchestrator.schedulers.gridengine.shell terminal|command HOST LINE`, with the job's variables. Grid Engine ends a
whole job when the qrsh of one of its tasks is killed. So no signal of the user's terminal reaches it. When the user has
gone, the shell over there is told to end, and what is still written is dropped.
"""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
import tty

FROM_THE_USER = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGPIPE)
CHUNK_BYTES = 65_536
GONE = b"\x03\x04"  # Ctrl-C and Ctrl-D: they end what runs over there, and its shell
AGAIN_S = 1.0


def main() -> int:
    how, host, line = sys.argv[1:]
    for number in FROM_THE_USER:
        signal.signal(number, signal.SIG_IGN)
    inherit = ["qrsh", "-inherit"]
    if how == "terminal":
        return _on_terminal([*inherit, "-pty", "y", host, line])
    started = subprocess.Popen(
        [*inherit, host, line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert started.stdout and started.stderr
    goes_to = {started.stdout.fileno(): 1, started.stderr.fileno(): 2}
    while goes_to:
        for came_from in select.select([*goes_to], [], [])[0]:
            if chunk := _read(came_from):
                _write(chunk, goes_to[came_from])
            else:
                del goes_to[came_from]
    return started.wait()


def _on_terminal(argv: list[str]) -> int:
    """Run qrsh on a terminal that is not the user's: with -pty it reads keys from a terminal alone."""
    pid, there = pty.fork()
    if pid == 0:
        tty.setraw(0)
        os.execvp(argv[0], argv)
    user_is_here, told_s = True, 0.0
    while True:
        ready, _, _ = select.select([there, 0] if user_is_here else [there], [], [], AGAIN_S)
        if there in ready:
            if not (chunk := _read(there)):
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            user_is_here = _write(chunk) and user_is_here
        if 0 in ready:
            if keys := _read(0):
                os.write(there, keys)
            else:
                user_is_here = False
        if not user_is_here and time.monotonic() > told_s + AGAIN_S:
            told_s = time.monotonic()
            with contextlib.suppress(OSError):
                os.write(there, GONE)


def _read(descriptor: int) -> bytes:
    """What has come; nothing once the other side is gone."""
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except OSError:
        return b""


def _write(chunk: bytes, descriptor: int = 1) -> bool:
    """Hand output on to the user; whether there is one."""
    try:
        while chunk:
            chunk = chunk[os.write(descriptor, chunk) :]
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
