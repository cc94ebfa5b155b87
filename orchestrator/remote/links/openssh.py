"""A link through the ssh program, which can share an open connection (ControlMaster)."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from typing import IO

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.remote.links.host import CONNECT_S, LOGIN_S, SILENCE_S, HostRefused, LinkLost, LoginHost

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
        self._messages = b""  # the last of ssh's own

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
        """Wait until the stream is ready. ssh's messages are read meanwhile: it would wait if their pipe were full."""
        longest_s = SILENCE_S if self._heard else self._login_s
        until_s = time.monotonic() + longest_s
        with selectors.DefaultSelector() as selector:
            selector.register(stream, event)
            selector.register(self._err, selectors.EVENT_READ)
            while (left_s := until_s - time.monotonic()) > 0.0:
                ready = [key.fileobj for key, _ in selector.select(left_s)]
                if stream in ready:
                    return
                if self._err in ready and not self._more_messages():
                    selector.unregister(self._err)
            raise LinkLost(f"{self._name}: the link broke: no answer within {longest_s:g} s")

    def _more_messages(self) -> bool:
        """Read what ssh has printed; False at the end of its messages."""
        try:
            data = os.read(self._err.fileno(), BLOCK_BYTES)
        except BlockingIOError:
            return True
        self._messages = (self._messages + data)[-BLOCK_BYTES:]
        return bool(data)

    def _ended(self) -> LinkLost | HostRefused:
        """The error with ssh's last message."""
        try:
            code = self._program.wait(CONNECT_S)
        except subprocess.TimeoutExpired:  # ssh still runs
            code = SSH_FAILED
        self._more_messages()  # a pipe holds no more than one block
        said = self._messages.decode(errors="replace").strip()
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
