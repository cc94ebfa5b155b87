"""Whether fabric reads the user's ssh configuration as `ssh` does: it passes over Include, and misreads some Match."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.remote.links.host import CONNECT_S

USE_SSH = "write `connect: openssh` into the site, so that `ssh` connects"
UNREAD = {
    "revokedhostkeys": "names a file of keys that no host may have (RevokedHostKeys)",
    "hostkeyalias": "names another host whose key this one has (HostKeyAlias)",
}
COMPARED = {"hostname": "HostName", "user": "User", "port": "Port", "proxyjump": "ProxyJump",
            "proxycommand": "ProxyCommand"}  # fmt: skip
# These count for a login alone, and an agent may make up for them.
OF_KEYS = {"identityagent": "IdentityAgent", "pkcs11provider": "PKCS11Provider", "certificatefile": "CertificateFile",
           "gssapiauthentication": "GSSAPIAuthentication", "securitykeyprovider": "SecurityKeyProvider"}  # fmt: skip
UNSET = ("none", "no", "internal", "SSH_AUTH_SOCK")


def misfit(host: str, fabric: Mapping[str, Any], given: Collection[str]) -> str:
    """Why fabric cannot be used for a host, with the remedy; '' if it can.

    `fabric` is what it takes from the configuration, with the user and the port that it uses; `given` are those that
    the address itself has.
    """
    for key, what in UNREAD.items():
        if fabric.get(key, "none") != "none":
            return f"your ssh configuration {what}, which torusrun does not read: {USE_SSH}"
    ssh = _as_ssh_reads_it(host)
    if isinstance(ssh, str):
        return f"`ssh` cannot use your configuration: {ssh}"
    if ssh is None:
        unread = "your ssh configuration has an Include, which fabric does not read"
        own = not str(fabric.get("include", "/etc/ssh/")).startswith("/etc/ssh/")  # Debian's file has one
        return f"{unread}: {USE_SSH}" if own else ""
    for key, name in COMPARED.items():
        ours, theirs = (str(found.get(key) or "none") for found in (fabric, ssh))
        if key not in given and _bare(ours) != _bare(theirs):
            how = f"by your ssh configuration {name} is {theirs}, and fabric takes {ours}"
            return f"{how} (it does not read Include, nor all of Match): {USE_SSH}"
    return ""


def _bare(value: str) -> str:
    """A value without case, and without the brackets that `ssh -G` puts around the address of a jump host."""
    return re.sub(r"[\[\]]", "", value.lower())


def keys_unread(host: str) -> str:
    """What of the ssh configuration about keys fabric does not use, with the remedy; '' for nothing."""
    found = _as_ssh_reads_it(host)
    ssh = found if isinstance(found, dict) else {}
    named = [name for key, name in OF_KEYS.items() if ssh.get(key, "none") not in UNSET]
    return f"fabric does not use {' and '.join(named)} of your ssh configuration: {USE_SSH}" if named else ""


def _as_ssh_reads_it(host: str) -> dict[str, str] | str | None:
    """The settings of a host, by `ssh -G`, the first value of each key; its error; None without ssh."""
    own = Path("~/.ssh/config").expanduser()
    moved = os.path.expanduser("~") != pwd.getpwuid(os.getuid()).pw_dir  # ssh does not look at HOME
    file: list[str | Path] = ["-F", own] if moved and own.is_file() else []
    try:
        done = process.run(["ssh", "-G", *file, "--", host], timeout_s=CONNECT_S)
    except SiteError:
        return None
    if done.exit_code:
        return " ".join(done.stderr.split()) or f"exit code {done.exit_code}"
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    return {key: value for key, _, value in reversed([*lines])}
