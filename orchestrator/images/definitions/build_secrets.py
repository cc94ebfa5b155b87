"""Logins that only a build uses: it reads them at its start, and no file that stays contains them.

Values are passed in the environment of the build; files are bound read-only below /mnt. The output of the build goes
through `hiding`, since programs repeat URLs.
"""

from __future__ import annotations

import base64
import netrc
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.paths import expanded
from torusrun.training.recipe.near import did_you_mean

LARGEST_BYTES = 1 << 20
SHORTEST = 4  # characters; a shorter one would hide unrelated words too
FILES = {"netrc": ".netrc", "ca_bundle": "ca.pem"}  # name: its file below /mnt
ENCODED = "TORUSRUN_SECRET_"  # prefix of the variables that the definition decodes
HIDDEN = "****"
# A part of a secret URL's path that may be a token: 12 or more characters, or 5 with a digit.
TOKEN = re.compile(r".{12,}|(?=.*\d).{5,}")
# A login written with variables, as https://$USER:$TOKEN@host, does not count: the build gets it from 'secrets'. Nor do
# the user names that a repository gives to everyone, as in https://git@github.com.
LOGIN = re.compile(r"(?i)\bhttps?://(?!(?:git|hg|anonymous)@)(?![^/\s@]*\$)[^/\s@'\"]+@")
LOGIN_MEND = "holds a login, which would stay in the image; give the URL without it, and the login in 'secrets'"


def has_login(text: str) -> bool:
    """Whether a URL in `text` has a user name or a password before its host."""
    return LOGIN.search(text) is not None


def misnamed(named: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(key, message) of every secret that must be a file, or whose name is no file's and no variable's."""
    for name, place in named.items():
        if name in FILES and not place.startswith("file:"):
            yield f"secrets.{name}", f"'secrets.{name}' is a file; write file:PATH"
        elif name not in FILES and name != name.upper():
            yield "secrets", f"'secrets' has no {name!r}; variables are upper-case{did_you_mean(name, FILES)}"


def variables(named: Mapping[str, str]) -> list[str]:
    """The secrets that are variables of the build, sorted by name."""
    return sorted(name for name in named if name not in FILES)


@dataclass(frozen=True)
class Secrets:
    """The secrets of one build, with their values."""

    values: dict[str, str] = field(default_factory=dict, repr=False)
    files: dict[str, Path] = field(default_factory=dict)

    def environment(self, prefix: str) -> dict[str, str]:
        """The variables with which the runtime with this `prefix` (APPTAINER) is started, for itself and its programs.

        Its shell evaluates the values that it passes on, so they travel in base64.
        """
        bundle = self.files.get("ca_bundle")
        own = {"SSL_CERT_FILE": str(bundle)} if bundle else {}
        return {**{f"{prefix}ENV_{ENCODED}{k}": _encoded(v) for k, v in self.values.items()}, **own}

    def bound(self) -> Iterator[tuple[Path, str]]:
        """(file, its name below /mnt) of every secret file that the build sees."""
        yield from ((path, FILES[name]) for name, path in self.files.items())

    @property
    def redactor(self) -> Callable[[str], str]:
        hidden = set(self.values.values()) | {_encoded(value) for value in self.values.values()}
        for value in self.values.values():
            hidden |= of_urls(value) | {*value.splitlines()}
        if path := self.files.get("netrc"):
            hidden |= {password for _, _, password in _netrc(path).hosts.values() if password}
        quoted = {quote(text, safe="", errors="surrogateescape") for text in hidden}  # a variable may hold any bytes
        return hiding(hidden | quoted | {unquote(text) for text in hidden})


def hiding(hidden: Iterable[str]) -> Callable[[str], str]:
    """The function that hides secrets in a text."""
    longest_first = sorted((text for text in hidden if len(text) >= SHORTEST), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
    return lambda text: pattern.sub(HIDDEN, text)


def read(named: Mapping[str, str], beside: Path) -> Secrets:
    """The secrets that an image file names, relative paths from `beside`. Raises UserError if one is missing."""
    values, files = {}, {}
    for name, place in named.items():
        kind, _, where = place.partition(":")
        if name in FILES:
            _text(name, beside / expanded(where))
            files[name] = Path(os.path.realpath(beside / expanded(where)))
        elif kind == "file":
            values[name] = _text(name, beside / expanded(where))
        elif where in os.environ:
            values[name] = os.environ[where]
        else:
            raise UserError(f"'secrets.{name}': the variable {where} is not set here; set it, or name a file:PATH")
    secrets = Secrets(values, files)
    secrets.redactor  # noqa: B018  reads the netrc file, to report its mistakes now
    return secrets


def _text(name: str, path: Path) -> str:
    try:
        return private.read_bytes(Path(os.path.realpath(path)), LARGEST_BYTES).decode().strip("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"'secrets.{name}': {path}: cannot be read: {why}") from None


def _netrc(path: Path) -> netrc.netrc:
    try:
        return netrc.netrc(str(path))
    except netrc.NetrcParseError as error:
        raise UserError(f"{path}:{error.lineno}: this is not a netrc file: {error.msg}") from None


def of_urls(value: str) -> set[str]:
    """The secret parts of URLs: the password, or the user if there is none, and what may be a token in the path."""
    secret = set()
    for url in value.split():
        with suppress(ValueError):
            parts = urlsplit(url)
            secret.add(parts.password or parts.username or "")
            if parts.hostname:
                secret |= {f"/{part}" for part in parts.path.split("/") if TOKEN.fullmatch(part)}
    return secret


def _encoded(value: str) -> str:
    return base64.b64encode(value.encode("utf-8", "surrogateescape")).decode()
