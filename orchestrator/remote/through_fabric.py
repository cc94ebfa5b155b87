"""Runs a command on a login node through fabric, as `ssh` would: `through_fabric HOST COMMAND`.

For machines without `ssh`, and sites with `connect: fabric`. It joins its own streams to the command, and ends with its
exit code, with 255 if the link is lost, 254 if it is refused and 253 if there was none. fabric would accept any host
key. Here the key must be in a file of known hosts. Jump hosts, terminals and tunnels are left to `ssh`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
from fabric import Connection
from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize

from torusrun.orchestrator.base import private, signals
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.remote import host_keys
from torusrun.orchestrator.remote.host import ALIVE_S, CONNECT_S, LOST, LOST_AFTER, REFUSED, UNREACHED, HostRefused
from torusrun.orchestrator.remote.host_keys import HostKeys

USE_SSH = "write `connect: openssh` into the site, so that `ssh` connects"
SHARE = (
    "let OpenSSH keep a connection that torusrun shares: `connect: openssh` in the site; ControlMaster, ControlPath "
    "and ControlPersist in ~/.ssh/config (docs/guides/remote.md); then `ssh` to it once"
)
UNREAD = {name.lower(): name for name in ("RevokedHostKeys", "HostKeyAlias", "Include", "ProxyJump")}
GREETING_S, AUTHENTICATION_S = 30.0, 30.0  # for a busy login node
SILENCE_S = float(ALIVE_S * LOST_AFTER)
CUT_OFF = ("timeout", "transport shut down")  # paramiko's messages for an authentication in which the link broke
KNOWN_HOSTS = {"userknownhostsfile": "~/.ssh/known_hosts ~/.ssh/known_hosts2",
               "globalknownhostsfile": "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"}  # fmt: skip
BLOCK_BYTES = 1 << 16
LOOKS_S, SENDS_S = 0.5, 0.02  # between looks at a channel; the latter while the other side takes no bytes
ERRORS = (OSError, EOFError, paramiko.SSHException)


class NotAsking(paramiko.Transport):  # type: ignore[misc]
    """A transport that asks the user nothing: it would read from the input of the command."""

    def auth_interactive_dumb(self, *given: Any, **options: Any) -> Any:
        raise paramiko.AuthenticationException("it asks for more than a key")


class Verified(Connection):  # type: ignore[misc]
    """A fabric connection to a host with a known key."""

    keys = HostKeys()  # fabric treats an attribute that the class lacks as a setting

    def __init__(self, address: str) -> None:
        options = {
            "banner_timeout": GREETING_S, "auth_timeout": AUTHENTICATION_S, "channel_timeout": GREETING_S,
            "transport_factory": NotAsking,
        }  # fmt: skip
        super().__init__(address, connect_timeout=int(CONNECT_S), connect_kwargs=options)
        for key, name in UNREAD.items():
            value = str(self.ssh_config.get(key, "none"))
            if value != "none" and not value.startswith("/etc/ssh/"):  # Debian's own file includes such files
                raise HostRefused(f"{address}: fabric does not read {name} of your ssh configuration: {USE_SSH}")
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

    def get_gateway(self) -> Any:
        """The ProxyCommand. fabric would also connect to jump hosts, and verify no key of theirs."""
        return self.ssh_config.get("proxycommand")


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


def connected(address: str) -> Verified:
    """The connection to a login node. Raises HostRefused, and OSError and paramiko's errors if it cannot be reached."""
    try:
        connection = Verified(address)
        connection.open()
    except paramiko.BadHostKeyException as error:
        raise HostRefused(_revoked(error.hostname, error.key, connection.keys) or _changed(error)) from None
    except paramiko.AuthenticationException as error:
        if any(words in str(error) for words in CUT_OFF):
            raise
        raise HostRefused(_not_let_in(address, error)) from None
    except (ConfigParseError, CouldNotCanonicalize, ValueError, KeyError) as error:
        raise HostRefused(f"{address}: fabric cannot use your ssh configuration: {error}: {USE_SSH}") from None
    except paramiko.SSHException as error:
        if "authentication methods" in str(error):  # an authentication without any key
            raise HostRefused(_not_let_in(address, error)) from None
        raise
    threading.Thread(target=_look_alive, args=(connection,), daemon=True).start()
    return connection


def _look_alive(connection: Verified) -> None:
    """Close the connection when it stops answering. Nothing else would end a wait for it."""
    while connection.is_connected:
        guard = threading.Timer(SILENCE_S, connection.client.close)
        guard.start()
        with contextlib.suppress(*ERRORS):
            connection.transport.global_request("keepalive@openssh.com", wait=True)
        guard.cancel()
        threading.Event().wait(ALIVE_S)


def relay(channel: Any, source: int, output: int) -> int:
    """Carry bytes between descriptors and a command's channel until it ends; its exit code, LOST for none."""
    typed, ended = b"", False  # read but not sent yet; whether the input has ended
    with signals.in_order():
        while not (channel.closed or (channel.eof_received and channel.exit_status_ready())):
            inputs = [channel] if typed or ended else [channel, source]
            ready, _, _ = select.select(inputs, [], [], SENDS_S if typed else LOOKS_S)
            _show(channel, output)
            if source in ready:
                typed = os.read(source, BLOCK_BYTES)
                ended = not typed
                if ended:
                    channel.shutdown_write()
            if typed and channel.send_ready():  # `sendall` would wait for ever if the program waits, too
                try:
                    typed = typed[channel.send(typed) :]
                except OSError:  # the command has ended, or the link: the exit code shows which
                    typed, ended = b"", True
        _show(channel, output)
    return channel.exit_status if channel.exit_status_ready() and channel.exit_status >= 0 else LOST


def _show(channel: Any, output: int) -> None:
    both = (channel.recv_ready, channel.recv, output), (channel.recv_stderr_ready, channel.recv_stderr, 2)
    for ready, receive, stream in both:
        while ready():
            left = memoryview(receive(BLOCK_BYTES))
            while left:
                left = left[os.write(stream, left) :]


def _revoked(hostname: str, key: paramiko.PKey, keys: HostKeys) -> str:
    named = f"{hostname}: its host key {key.get_name()} {key.fingerprint} is marked @revoked in a file of known hosts"
    stolen = "Somebody may have stolen it; ask the site which key the host has now"
    return f"{named}. {stolen}" if key in keys.revoked else ""


def _changed(error: paramiko.BadHostKeyException) -> str:
    return (
        f"{error.hostname}: its host key has CHANGED: it is {error.key.get_name()} {error.key.fingerprint}, known is "
        f"{error.expected_key.fingerprint}. Somebody may intercept the connection; ask the site. If the site confirms "
        f"the new key, `ssh-keygen -R '{error.hostname}'`, and `ssh` to it once"
    )


def _not_let_in(name: str, error: BaseException) -> str:
    return (
        f"{name} does not let you in: {str(error).rstrip('.')}. Load your key into ssh-agent (`ssh-add`). If it asks "
        f"for a password or a second factor, {SHARE}"
    )


def main() -> int:
    logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else it prints its errors, which are raised too
    address, command = sys.argv[1:]
    failed = UNREACHED
    try:
        with contextlib.closing(connected(address)) as connection:
            failed = LOST
            channel = connection.create_session()
            channel.exec_command(command)
            return relay(channel, 0, 1)
    except SiteError as error:
        print(f"torusrun: {private.plain(str(error))}", file=sys.stderr)
        return REFUSED
    except ERRORS as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        print(f"{address} cannot be reached: {private.plain(why)}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
