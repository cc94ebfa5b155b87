"""A login node without ssh: a process of this machine, behind a link that breaks wherever a test says."""

import os
import select
import subprocess
import sys
from pathlib import Path

from torusrun.orchestrator.remote.links.host import LinkLost, LoginHost

HERE = LoginHost("nobody@nowhere", python=sys.executable)


class Pipe:
    """A link to a process of this machine. It breaks after `lives` bytes have come through it."""

    def __init__(self, command: str, home: Path, lives: float = float("inf")) -> None:
        env = {"HOME": str(home), "PATH": os.defpath, "SHELL": "/bin/sh", "PYTHONPATH": str(home)}
        self._process = subprocess.Popen(
            ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=home
        )
        self.lives = lives

    def send(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError:
            raise LinkLost("the pipe broke") from None

    def receive(self) -> bytes:
        ready = self.lives > 0 and select.select([self._process.stdout], [], [], 60)[0]
        data = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
        data = data[: int(min(self.lives, len(data)))]
        self.lives -= len(data)
        if not data:
            raise LinkLost("the pipe broke")
        return data

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
