"""Who is let in, and to whom: host keys and second factors, against a real SSH server."""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torusrun.orchestrator.remote.links import host_keys, ssh_config
from torusrun.orchestrator.remote.links.host import HostRefused, LinkLost, LoginHost
from torusrun.orchestrator.remote.links.relay import relay
from torusrun.orchestrator.remote.links.through_fabric import ThroughFabric

from tests.unit.ssh_server import SshServer
from tests.unit.terminals import Terminal
from torusrun.orchestrator.base.process import Streams

LOG_IN = (
    "import sys; from torusrun.orchestrator.base.errors import SiteError\n"
    "from torusrun.orchestrator.remote.links.host import LoginHost\n"
    "from torusrun.orchestrator.remote.links.through_fabric import ThroughFabric\n"
    "try: ThroughFabric(LoginHost(sys.argv[1]), 'true').close(); print('logged in')\n"
    "except SiteError as error: print(type(error).__name__, error)\n"
)
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
    ThroughFabric(server.host, "true").close()


@pytest.mark.parametrize("names", ["{}", "*", "127.0.0.1", "other,[127.0.0.?]:*"])
@pytest.mark.parametrize("known", [True, False])
def test_a_revoked_key_is_refused(home: Path, server: SshServer, names: str, known: bool) -> None:
    also = f"{server.name} {server.line if known else line(OTHER)}"
    knows(home, also, f"@revoked {names.format(server.name)} {server.line}")
    with pytest.raises(HostRefused, match=f"its host key .*{re.escape(server.key.fingerprint)} is marked @revoked"):
        ThroughFabric(server.host, "true")


@pytest.mark.parametrize("line", ["RevokedHostKeys {home}/revoked", "HostKeyAlias login"])
def test_a_setting_about_keys_that_nothing_here_reads_is_refused(home: Path, server: SshServer, line: str) -> None:
    knows(home, f"{server.name} {server.line}")
    config = home / ".ssh/config"
    config.write_text("RevokedHostKeys none\n")
    ThroughFabric(server.host, "true").close()
    config.write_text(f"Host 127.0.0.1\n {line.format(home=home)}\n")
    with pytest.raises(HostRefused, match=f"{line.partition(' ')[0]}.*connect: openssh"):
        ThroughFabric(server.host, "true")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("Include {home}/.ssh/more\n", "User is other, and fabric takes .*Include.*: write `connect: openssh`"),
        ("Match tagged x\n User wrong\n", "User is .*, and fabric takes wrong|`ssh` cannot use your configuration: "),
        ("Host *\n ProxyJump 127.0.0.1\n", "127.0.0.1: .* through itself .ProxyJump.: exclude it, as in 'Host . !127"),
        ("Host *\n ProxyJump a\nHost a\n ProxyJump b\nHost b\n ProxyJump a\n", "through itself"),
        ('Host "a\n', 'fabric cannot use your ssh configuration: Unparsable host "a: write `connect: openssh`'),
        (
            "CanonicalizeHostname yes\nCanonicalDomains no.invalid\nCanonicalizeFallbackLocal no\n",
            "it finds no address",
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
        ThroughFabric(LoginHost(name, connect="fabric"), "true")


def test_an_include_that_changes_nothing_for_a_host_lets_it_in(home: Path, server: SshServer) -> None:
    knows(home, f"{server.name} {server.line}")
    (home / ".ssh/config").write_text(f"Include {home}/.ssh/gone\n")
    ThroughFabric(server.host, "true").close()


def test_a_jump_host_named_by_its_address_is_no_difference(home: Path) -> None:
    """`ssh -G` puts brackets around the address."""
    (home / ".ssh").mkdir(exist_ok=True)
    (home / ".ssh/config").write_text("Host inner\n ProxyJump me@10.0.0.1\n")
    given = ("hostname", "user", "port")
    assert ssh_config.misfit("inner", {"proxyjump": "me@10.0.0.1"}, given) == ""
    assert "ProxyJump is me@[10.0.0.1]" in ssh_config.misfit("inner", {"proxyjump": "me@10.0.0.2"}, given)


def test_an_authority_is_not_a_host_key(home: Path, server: SshServer) -> None:
    knows(home, f"@cert-authority {server.name} {server.line}")
    with pytest.raises(HostRefused, match="its host key is not known here"):
        ThroughFabric(server.host, "true")


def test_a_changed_key_is_refused_and_the_key_of_a_pattern_is_known(home: Path, server: SshServer) -> None:
    knows(home, f"{server.name} {line(OTHER)}")
    with pytest.raises(HostRefused, match="CHANGED"):
        ThroughFabric(server.host, "true")
    knows(home, f"[127.0.0.*]:* {server.line}")
    ThroughFabric(server.host, "true").close()
    knows(home, f"[127.0.0.*]:*,!{server.name} {server.line}")
    with pytest.raises(HostRefused, match="not known"):
        ThroughFabric(server.host, "true")


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


def test_a_second_factor_is_typed_unseen(home: Path) -> None:
    code = secrets.token_hex(8)
    asks = [
        query(("Way\x1b[2J: ", True), title="Two factors", text="Choose\none"),
        query(("Code: ", False)),
        query(text="wait"),
    ]
    with SshServer(home, asks, ["push", code]) as server:
        knows(home, f"{server.name} {server.line}")
        with Terminal(LOG_IN, server.host.address) as terminal:
            asked = f"({server.host.address}) "
            terminal.until(f"{asked}Two factors\n{asked}Choose\n{asked}one\n{asked}Way\\x1b[2J: ")
            terminal.press("push\n")
            terminal.until(f"{asked}Code: ")
            terminal.press(f"{code}\n")
            terminal.until(f"{asked}wait\nlogged in")
            assert terminal.ended() == 0 and terminal.settled
        assert server.given == ["push", code] and code not in terminal.written and "push" in terminal.written


@pytest.mark.parametrize(
    ("keys", "why"),
    [("wrong\n", "HostRefused .*does not let you in: Authentication failed"), ("\x04", "HostRefused .*got none"),
     ("\x03", "KeyboardInterrupt")],
)  # fmt: skip
def test_without_the_second_factor_login_fails_and_the_terminal_is_restored(
    asking: SshServer, keys: str, why: str
) -> None:
    with Terminal(LOG_IN, asking.host.address) as terminal:
        terminal.until("Code: ")
        terminal.press(keys)
        assert (terminal.ended() != 0) == (keys == "\x03") and terminal.settled
    assert re.search(why, terminal.written)


def test_without_a_terminal_a_second_factor_is_refused(asking: SshServer) -> None:
    with pytest.raises(HostRefused, match="no terminal is free to ask you: .*connect: openssh.*ControlMaster"):
        ThroughFabric(asking.host, "true")


def test_a_login_without_any_key_is_refused(home: Path, server: SshServer) -> None:
    knows(home, f"{server.name} {server.line}")
    (home / ".ssh/id_ecdsa").unlink()
    with pytest.raises(HostRefused, match="does not let you in: No authentication methods available") as raised:
        ThroughFabric(server.host, "true")
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
            assert relay(channel, Streams(read.fileno(), written.fileno()), terminal=False) == 7
        at_work.join(60)
        client.close()
    assert bytes(got) == much == (tmp_path / "output").read_bytes()
