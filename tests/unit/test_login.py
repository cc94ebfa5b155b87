"""Who is let in, and to whom: host keys and second factors, against a real SSH server."""

from __future__ import annotations

import os
import re
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ssh_server import SshServer
from torusrun.orchestrator.remote import host_keys
from torusrun.orchestrator.remote.host import HostRefused, LinkLost
from torusrun.orchestrator.remote.through_fabric import connected, relay

OTHER = paramiko.ECDSAKey.generate()


def line(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.get_base64()}"


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def server(home: Path) -> Iterator[SshServer]:
    with SshServer(home) as server:
        yield server


@pytest.fixture
def asking(home: Path) -> Iterator[SshServer]:
    """A known server that asks for a code, which is 'right'."""
    with SshServer(home, [query(("Code: ", False))], ["right"]) as server:
        knows(home, f"{server.name} {server.line}")
        yield server


def knows(home: Path, *lines: str) -> None:
    (home / ".ssh/known_hosts").write_text("".join(f"{each}\n" for each in lines))


def test_lines_with_markers_and_malformed_lines_let_a_known_host_in(home: Path, server: SshServer) -> None:
    damaged = f"{server.name} {OTHER.get_name()} not/base64!", f"{server.name} ssh-rsa {b64encode(b'x').decode()}"
    marked = f"@cert-authority * {line(OTHER)}", f"@revoked * {line(OTHER)}", f"@new * {server.line}"
    knows(home, *marked, *damaged, "|1|x|y a b", "# none", "", "alone", f"{server.name} {server.line} a comment")
    connected(server.host.address).close()


@pytest.mark.parametrize("names", ["{}", "*", "127.0.0.1", "other,[127.0.0.?]:*"])
@pytest.mark.parametrize("known", [True, False])
def test_a_revoked_key_is_refused(home: Path, server: SshServer, names: str, known: bool) -> None:
    also = f"{server.name} {server.line if known else line(OTHER)}"
    knows(home, also, f"@revoked {names.format(server.name)} {server.line}")
    with pytest.raises(HostRefused, match=f"its host key .*{re.escape(server.key.fingerprint)} is marked @revoked"):
        connected(server.host.address)


@pytest.mark.parametrize("line", ["RevokedHostKeys {home}/revoked", "HostKeyAlias login"])
def test_a_setting_about_keys_that_nothing_here_reads_is_refused(home: Path, server: SshServer, line: str) -> None:
    knows(home, f"{server.name} {server.line}")
    config = home / ".ssh/config"
    config.write_text("RevokedHostKeys none\n")
    connected(server.host.address).close()
    config.write_text(f"Host 127.0.0.1\n {line.format(home=home)}\n")
    with pytest.raises(HostRefused, match=f"{line.partition(' ')[0]}.*connect: openssh"):
        connected(server.host.address)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("Include {home}/.ssh/more\n", "fabric does not read Include .*: write `connect: openssh`"),
        ("Host *\n ProxyJump a,b\n", "fabric does not read ProxyJump .*: write `connect: openssh`"),
        ('Host "a\n', 'fabric cannot use your ssh configuration: Unparsable host "a: write `connect: openssh`'),
        (
            "CanonicalizeHostname yes\nCanonicalDomains no.invalid\nCanonicalizeFallbackLocal no\n",
            "fabric cannot use your ssh configuration",
        ),
    ],
)
def test_a_configuration_that_fabric_reads_otherwise_is_refused(
    home: Path, server: SshServer, config: str, says: str
) -> None:
    knows(home, f"{server.name} {server.line}")
    (home / ".ssh/more").write_text("User other\n")
    (home / ".ssh/config").write_text(config.format(home=home))
    name = "nowhere" if "Canonical" in config else server.host.address.rpartition("@")[2]
    with pytest.raises(HostRefused, match=says):
        connected(name)


def test_an_authority_is_not_a_host_key(home: Path, server: SshServer) -> None:
    knows(home, f"@cert-authority {server.name} {server.line}")
    with pytest.raises(HostRefused, match="its host key is not known here"):
        connected(server.host.address)


def test_a_changed_key_is_refused_and_the_key_of_a_pattern_is_known(home: Path, server: SshServer) -> None:
    knows(home, f"{server.name} {line(OTHER)}")
    with pytest.raises(HostRefused, match="CHANGED"):
        connected(server.host.address)
    knows(home, f"[127.0.0.*]:* {server.line}")
    connected(server.host.address).close()
    knows(home, f"[127.0.0.*]:*,!{server.name} {server.line}")
    with pytest.raises(HostRefused, match="not known"):
        connected(server.host.address)


def test_hashed_names_are_read(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"{paramiko.HostKeys.hash_host('login.example')} {line(OTHER)}\n")
    assert host_keys.read([tmp_path / "hosts"], "Login.example", 22).known == (OTHER,)
    assert not host_keys.read([tmp_path / "hosts"], "login.example", 2222).known
    assert not host_keys.read([tmp_path / "hosts"], "other.example", 22).known


@given(st.lists(st.lists(st.sampled_from(
    ["@revoked", "@cert-authority", "h", "|1|", "|1|a|b", "!h", "[", "ssh-rsa", "ssh-ed25519", OTHER.get_name(),
     OTHER.get_base64(), OTHER.get_base64()[:40], "AAAA", "=", "\xff", "\0", "#"]))))  # fmt: skip
def test_no_file_of_known_hosts_is_a_defect(tmp_path_factory: pytest.TempPathFactory, lines: list[list[str]]) -> None:
    file = tmp_path_factory.getbasetemp() / "known_hosts"
    file.write_bytes("\n".join(map(" ".join, lines)).encode("latin-1"))
    assert set(host_keys.read([file], "h", 22).known) <= {OTHER}


def query(*prompts: tuple[str, bool], title: str = "", text: str = "") -> paramiko.InteractiveQuery:
    return paramiko.InteractiveQuery(title, text, *prompts)


def test_a_second_factor_is_refused_with_what_to_do(asking: SshServer) -> None:
    with pytest.raises(HostRefused, match="does not let you in: .*connect: openssh.*ControlMaster"):
        connected(asking.host.address)


def test_a_login_without_any_key_is_refused(home: Path, server: SshServer) -> None:
    knows(home, f"{server.name} {server.line}")
    (home / ".ssh/id_ecdsa").unlink()
    with pytest.raises(HostRefused, match="does not let you in: No authentication methods available") as raised:
        connected(server.host.address)
    assert not isinstance(raised.value, LinkLost)


@pytest.mark.timeout(120)
def test_a_program_that_prints_much_before_it_reads_much_input_ends(server: SshServer, tmp_path: Path) -> None:
    """Each side waits for the other if one sends all before it takes anything: more than the window of a channel."""
    much = os.urandom(5 << 20)
    (tmp_path / "input").write_bytes(much)
    with socket.create_connection(("127.0.0.1", int(server.host.address.rpartition(":")[2]))) as link:
        client = paramiko.Transport(link)
        client.start_client(timeout=60)
        client.auth_publickey("me", OTHER)
        channel = client.open_session(timeout=60)
        there = server.transports[0].accept(60)
        got = bytearray()

        def program() -> None:
            there.sendall(much)
            while data := there.recv(1 << 16):
                got.extend(data)
            there.send_exit_status(7)
            there.close()

        at_work = threading.Thread(target=program, daemon=True)
        at_work.start()
        with open(tmp_path / "input", "rb") as read, open(tmp_path / "output", "wb") as written:
            assert relay(channel, read.fileno(), written.fileno()) == 7
        at_work.join(60)
        client.close()
    assert bytes(got) == much == (tmp_path / "output").read_bytes()
