"""A real SSH server in this process. It lets a key in, and asks more if it has questions."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_PARTIALLY_SUCCESSFUL, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from torusrun.orchestrator.remote.host import LoginHost


class SshServer(paramiko.ServerInterface):
    """`asks` are rounds of questions; the login succeeds if the answers are `answers`."""

    def __init__(self, home: Path, asks: list[paramiko.InteractiveQuery] = (), answers: list[str] = ()) -> None:
        self.key, mine = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
        (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
        mine.write_private_key_file(str(home / ".ssh/id_ecdsa"))
        self._asks, self._answers, self.given = [*asks], [*answers], list[str]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.host, self.name = LoginHost(f"me@127.0.0.1:{port}", connect="fabric"), f"[127.0.0.1]:{port}"
        self.line = f"{self.key.get_name()} {self.key.get_base64()}"
        self.transports: list[paramiko.Transport] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # which ends it
            while True:
                transport = paramiko.Transport(self._listener.accept()[0])
                transport.add_server_key(self.key)
                self.transports.append(transport)
                transport.start_server(server=self, event=threading.Event())

    def __enter__(self) -> SshServer:
        return self

    def __exit__(self, *raised: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for transport in self.transports:
            transport.close()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey,keyboard-interactive"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_PARTIALLY_SUCCESSFUL if self._asks else AUTH_SUCCESSFUL

    def check_auth_interactive(self, username: str, submethods: str) -> paramiko.InteractiveQuery:
        return self._asks.pop(0)

    def check_auth_interactive_response(self, responses: list[str]) -> paramiko.InteractiveQuery | int:
        self.given += responses
        if self._asks:
            return self._asks.pop(0)
        return AUTH_SUCCESSFUL if self.given == self._answers else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        return True
