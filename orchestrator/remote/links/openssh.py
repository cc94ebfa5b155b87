"""A link through the ssh program, which can share an open connection (ControlMaster)."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from typing import IO

from orchestrator.base import process
from orchestrator.base.process import Streams
from orchestrator.remote.links.host import CONNECT_S, LOGIN_S, SILENCE_S, HostRefused, LinkLost, LoginHost

BLOCK_BYTES = 1 << 16
REFUSALS = ("Host key verification failed", "Permission denied", "REMOTE HOST IDENTIFICATION HAS CHANGED")
SSH_FAILED = 255
ALIVE = ("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=2")


class OpenSSH:
    """The streams of one command."""

    def __init__(self, host: LoginHost, command: str, *, asks: bool = True) -> None:
        self._name, self._heard = host.address, False
        self._login_s = LOGIN_S if asks else SILENCE_S
        self._program = process.converse(["ssh", *_options(asks=asks), *ALIVE, "--", host.address, command])
        assert self._program.stdin and self._program.stdout and self._program.stderr
        self._in, self._out, self._err = self._program.stdin, self._program.stdout, self._program.stderr
        for stream in (self._in, self._out, self._err):
            os.set_blocking(stream.fileno(), False)

    def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self._wait(self._in, selectors.EVENT_WRITE)
            try:
                left = left[os.write(self._in.fileno(), left[:BLOCK_BYTES]) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._ended() from None

    def receive(self) -> bytes:
        while True:
            self._wait(self._out, selectors.EVENT_READ)
            try:
                data = os.read(self._out.fileno(), BLOCK_BYTES)
            except BlockingIOError:
                continue
            if not data:
                raise self._ended()
            self._heard = True
            return data

    def _wait(self, stream: IO[bytes], event: int) -> None:
        longest_s = SILENCE_S if self._heard else self._login_s
        with selectors.DefaultSelector() as selector:
            selector.register(stream, event)
            if not selector.select(longest_s):
                raise LinkLost(f"{self._name}: the link broke: no answer within {longest_s:g} s")

    def _ended(self) -> LinkLost | HostRefused:
        """The error with ssh's last message."""
        try:
            code = self._program.wait(CONNECT_S)
            said = (os.read(self._err.fileno(), BLOCK_BYTES) or b"").decode(errors="replace").strip()
        except (subprocess.TimeoutExpired, OSError):  # ssh still runs, or has printed nothing
            code, said = SSH_FAILED, ""
        if code != SSH_FAILED:
            return LinkLost(f"{self._name}: {said}", code)
        why = f"{self._name}: ssh ended: {said or f'exit code {code}'}"
        if any(refusal in said for refusal in REFUSALS):
            return HostRefused(f"{why}. Run `ssh {self._name}` by hand once: torusrun continues once that works")
        return LinkLost(why)

    def interact(self, command: str, *, terminal: bool, streams: Streams | None = None) -> int:
        argv = ["ssh", "-tt" if terminal else "-T", *_options()[1:], *ALIVE, "--", self._name, command]
        return process.join(argv, streams) if streams else process.interact(argv)  # ssh itself reports a broken link

    def close(self) -> None:
        self._program.kill()
        self._program.wait()
        for stream in (self._in, self._out, self._err):
            stream.close()


def _options(*, asks: bool = True) -> list[str]:
    batch = [] if asks and sys.stdin and sys.stdin.isatty() else ["-o", "BatchMode=yes"]
    return ["-T", "-o", "StrictHostKeyChecking=yes", "-o", f"ConnectTimeout={CONNECT_S:.0f}", *batch]
