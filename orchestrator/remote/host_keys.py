"""The keys of a host in files of known hosts, in OpenSSH's format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT.

Lines with @cert-authority are skipped, since paramiko verifies no certificates of hosts. So are malformed lines.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry

from torusrun.orchestrator.remote.host import HostRefused

REVOKED = "@revoked"
PORT = 22


@dataclass(frozen=True)
class HostKeys:
    """The valid keys of a host, and its revoked keys. `known` has no revoked key."""

    known: tuple[paramiko.PKey, ...] = ()
    revoked: tuple[paramiko.PKey, ...] = ()


def name(host: str, port: int) -> str:
    """The name of a host in files of known hosts."""
    return host if port == PORT else f"[{host}]:{port}"


def read(files: Iterable[Path], host: str, port: int) -> HostKeys:
    """The keys of `host` in `files`. Raises HostRefused if a file cannot be read: it may revoke keys."""
    known, revoked = [], []
    for file in files:
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError as error:
            raise HostRefused(f"{file}: cannot be read: {error.strerror}") from None
        for words in map(str.split, lines):
            if words[:1] == [REVOKED]:  # for every port: a revoked key is valid for no host
                revoked += _keys(words[1:], {host, name(host, port)})
            else:  # `_keys` skips lines with another marker
                known += _keys(words, {name(host, port)})
    return HostKeys(tuple(key for key in known if key not in revoked), tuple(revoked))


def _keys(words: list[str], names: set[str]) -> list[paramiko.PKey]:
    """The key of a line, if the line is for one of `names`."""
    if len(words) < 3 or words[0].startswith(("#", "@")):
        return []
    try:
        if not _matches(words[0].split(","), {each.lower() for each in names}):
            return []
        entry = HostKeyEntry.from_line(" ".join(words[:3]))
    except Exception:  # paramiko raises errors of many kinds for a damaged key
        return []
    return [entry.key] if entry else []


def _matches(patterns: list[str], names: set[str]) -> bool:
    """Whether a pattern matches one of `names`, and no pattern with '!' does."""
    matches = {pattern.startswith("!") for pattern in patterns for each in names if _is(pattern.lstrip("!"), each)}
    return matches == {False}


def _is(pattern: str, each: str) -> bool:
    if pattern.startswith("|"):  # |1|salt|HMAC-SHA1 of the name
        _, _, salt, digest = pattern.split("|")
        return hmac.compare_digest(hmac.digest(b64decode(salt), each.encode(), "sha1"), b64decode(digest))
    return fnmatchcase(each, pattern.lower().replace("[", "[[]"))
