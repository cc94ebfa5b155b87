"""A link through fabric, which reads ~/.ssh/config, finds keys and the agent, and uses jump hosts.

fabric would accept any host key, also of jump hosts. Here every key must be in a file of known hosts.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import paramiko
from fabric import Connection
from fabric.connection import derive_shorthand
from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize

from torusrun.orchestrator.base.process import STANDARD, Streams
from torusrun.orchestrator.remote.links import host_keys, ssh_config
from torusrun.orchestrator.remote.links.host import CONNECT_S, SILENCE_S, HostRefused, LinkLost, LoginHost
from torusrun.orchestrator.remote.links.host_keys import HostKeys
from torusrun.orchestrator.remote.links.relay import relay
from torusrun.orchestrator.remote.links.second_factor import SHARE, AskingTransport
from torusrun.orchestrator.remote.links.ssh_config import USE_SSH

GREETING_S, AUTHENTICATION_S = 30.0, 30.0  # for a busy login node
CUT_OFF = ("timeout", "transport shut down")  # paramiko's messages for an authentication in which the link broke
NO_KEY = "No authentication methods available"  # its message for an authentication without any key
KNOWN_HOSTS = {"userknownhostsfile": "~/.ssh/known_hosts ~/.ssh/known_hosts2",
               "globalknownhostsfile": "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"}  # fmt: skip
BLOCK_BYTES = 1 << 16
ALIVE_S = 10.0
EXIT_S = 2.0  # after the last output of a program, for its exit code
ERRORS = (OSError, EOFError, paramiko.SSHException)


class Verified(Connection):  # type: ignore[misc]
    """A fabric connection, through its jump hosts, to a host with a known key."""

    keys = HostKeys()  # fabric treats an attribute that the class lacks as a setting
    through: tuple[str, ...] = ()  # the hosts that lead to this one by the configuration of jump hosts

    def __init__(self, address: str, gateway: Any = None, through: tuple[str, ...] = ()) -> None:
        object.__setattr__(self, "through", (*through, address))  # before fabric asks for the gateway
        options = {
            "banner_timeout": GREETING_S, "auth_timeout": AUTHENTICATION_S, "channel_timeout": GREETING_S,
            "transport_factory": partial(AskingTransport, address),
        }  # fmt: skip
        super().__init__(address, gateway=gateway, connect_timeout=int(CONNECT_S), connect_kwargs=options)
        used = {**self.ssh_config, "user": self.user, "port": self.port}
        given = {key for key, value in derive_shorthand(address).items() if value}
        if why := ssh_config.misfit(self.original_host, used, given):
            raise HostRefused(f"{address}: {why}")
        self.keys = host_keys.read(self._known_hosts(), self.host, self.port)
        self.client.set_missing_host_key_policy(Refuse(self.keys))
        trusted = self.client.get_host_keys()
        for key in reversed(self.keys.known):  # of two keys of one kind the first counts
            trusted.add(host_keys.name(self.host, self.port), key.get_name(), key)

    def _known_hosts(self) -> Iterator[Path]:
        for key, default in KNOWN_HOSTS.items():
            for name in str(self.ssh_config.get(key, default)).split():
                path = Path(os.path.expanduser(name))
                if path.is_absolute() and os.path.isfile(path):  # 'none' is not a file of the working directory
                    yield path

    def open(self) -> Any:
        try:
            return super().open()
        except paramiko.BadHostKeyException as error:
            raise HostRefused(_revoked(error.hostname, error.key, self.keys) or _changed(error)) from None

    def get_gateway(self) -> Any:
        """The nearest jump host, reached through those before it. They are verified like the host itself."""
        jumps = self.ssh_config.get("proxyjump", "none")
        if jumps == "none":
            return super().get_gateway() if "proxyjump" not in self.ssh_config else None
        nearest = None
        for jump in jumps.split(","):
            address = jump.strip().removeprefix("ssh://")
            if address in self.through:
                raise HostRefused(
                    f"{address}: your ssh configuration reaches it through itself (ProxyJump): exclude it, as in "
                    f"'Host * !{address}'"
                )
            nearest = Verified(address, nearest, self.through)
        return nearest


class Refuse(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """An unknown key ends the connection."""

    def __init__(self, keys: HostKeys) -> None:
        self._keys = keys

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise HostRefused(
            _revoked(hostname, key, self._keys)
            or f"{hostname}: its host key is not known here: {key.get_name()} {key.fingerprint}. Compare this with "
            f"what the site publishes; if it is the same, run `ssh` to this host once and answer yes"
        )


class ThroughFabric:
    """The streams of one command, over one connection."""

    def __init__(self, host: LoginHost, command: str) -> None:
        self._name = host.address
        try:
            self._connection = Verified(host.address)
            self._connection.open()
            self._channel = self._connection.create_session()
            self._channel.settimeout(SILENCE_S)
            self._channel.exec_command(command)
        except paramiko.AuthenticationException as error:
            if any(words in str(error) for words in CUT_OFF):
                raise LinkLost(f"{self._name}: the link broke: {error}") from None
            raise HostRefused(_not_let_in(self._name, error)) from None
        except (ConfigParseError, CouldNotCanonicalize) as error:
            why = f"it finds no address for {error}" if isinstance(error, CouldNotCanonicalize) else str(error)
            raise HostRefused(f"{self._name}: fabric cannot use your ssh configuration: {why}: {USE_SSH}") from None
        except ERRORS as error:
            if str(error) == NO_KEY:
                raise HostRefused(_not_let_in(self._name, error)) from None
            raise LinkLost(f"{self._name} cannot be reached: {_words(error)}") from None
        except (ValueError, KeyError, RecursionError) as error:  # fabric raises these for an ssh configuration
            raise HostRefused(f"{self._name}: fabric cannot use your ssh configuration: {error}: {USE_SSH}") from None

    def send(self, data: bytes) -> None:
        # paramiko waits without limit for a socket that takes no more bytes. Closing the socket ends the wait.
        guard = threading.Timer(SILENCE_S, self._connection.client.close)
        guard.start()
        try:
            for begin in range(0, len(data), BLOCK_BYTES):
                self._channel.sendall(data[begin : begin + BLOCK_BYTES])
        except ERRORS as error:
            raise self._ended(f"the link broke: {_words(error)}") from None
        finally:
            guard.cancel()

    def receive(self) -> bytes:
        try:
            data = self._channel.recv(BLOCK_BYTES)
        except ERRORS as error:
            raise LinkLost(f"{self._name}: the link broke: {_words(error)}") from None
        if not data:
            raise self._ended("the connection ended")
        return bytes(data)

    def interact(self, command: str, *, terminal: bool, streams: Streams | None = None) -> int:
        ended = threading.Event()
        try:
            channel = self._connection.create_session()
            if terminal:
                channel.get_pty(os.environ.get("TERM", "dumb"), *os.get_terminal_size())
            channel.exec_command(command)
            threading.Thread(target=self._look_alive, args=(ended,), daemon=True).start()
            code = relay(channel, streams or STANDARD, terminal=terminal)
        except ERRORS as error:
            raise LinkLost(f"{self._name}: the link broke: {_words(error)}") from None
        finally:
            ended.set()
        if code is None:
            raise LinkLost(f"{self._name}: the link broke, and ended what ran there")
        return code

    def _look_alive(self, ended: threading.Event) -> None:
        """Close the connection when it stops answering."""
        while not ended.wait(ALIVE_S):
            guard = threading.Timer(SILENCE_S, self._connection.client.close)
            guard.start()
            with contextlib.suppress(*ERRORS):
                self._connection.transport.global_request("keepalive@openssh.com", wait=True)
            guard.cancel()

    def _ended(self, how: str) -> LinkLost:
        """The error with the last message of the program on the other side, and its exit code if it has ended."""
        said, code = b"", None
        with contextlib.suppress(*ERRORS):
            while self._channel.recv_stderr_ready() and len(said) < BLOCK_BYTES:
                said += self._channel.recv_stderr(BLOCK_BYTES)
            # A program's exit code arrives after the end of its output.
            if self._channel.status_event.wait(EXIT_S) and self._channel.exit_status >= 0:
                code = self._channel.exit_status
        last = said.decode(errors="replace").strip()
        return LinkLost(f"{self._name}: {last or how}", code)

    def close(self) -> None:
        nearest: Any = self._connection
        while isinstance(nearest, Connection):
            nearest.client.close()
            nearest = nearest.gateway


def _revoked(hostname: str, key: paramiko.PKey, keys: HostKeys) -> str:
    if key not in keys.revoked:
        return ""
    return (
        f"{hostname}: its host key {key.get_name()} {key.fingerprint} is marked @revoked in a file of known hosts. "
        f"Somebody may have stolen it; ask the site which key the host has now"
    )


def _changed(error: paramiko.BadHostKeyException) -> str:
    return (
        f"{error.hostname}: its host key has CHANGED: it is {error.key.get_name()} {error.key.fingerprint}, known is "
        f"{error.expected_key.fingerprint}. Somebody may intercept the connection; ask the site. "
        f"If the site confirms the new key, "
        f"`ssh-keygen -R '{error.hostname}'`, and `ssh` to it once"
    )


def _not_let_in(name: str, error: BaseException) -> str:
    unread = ssh_config.keys_unread(derive_shorthand(name)["host"])
    return (
        f"{name} does not let you in: {str(error).rstrip('.')}. Load your key into ssh-agent (`ssh-add`). If it asks "
        f"for a password or a second factor, {SHARE}{'. ' if unread else ''}{unread[:1].upper()}{unread[1:]}"
    )


def _words(error: BaseException) -> str:
    if isinstance(error, (socket.timeout, TimeoutError)):
        return f"no answer within {SILENCE_S:g} s"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
