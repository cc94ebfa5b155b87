"""Pages of package indexes, each fetched once."""

from __future__ import annotations

import base64
import io
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.definitions.build_secrets import HIDDEN

WAIT_S = 30.0
LARGEST_BYTES = 64 << 20
# A part of a path with letters, digits and no dot, as long as the shortest tokens that indexes have in their URLs:
# Cloudsmith's have 16 characters, GitLab's 20 (from memory).
TOKEN = re.compile(r"(?<=/)(?=[^/]*[A-Za-z])(?=[^/]*\d)[A-Za-z0-9_~-]{16,}(?=[/?#;\s]|$)")


def shown(url: str) -> str:
    """A URL for a message: without its login, its query and what looks like a token in its path."""
    if parts := _parsed(url):
        host = parts.netloc.rpartition("@")[2]
        return urllib.parse.urlunsplit((parts.scheme, host, without_tokens(parts.path), "", ""))
    # as for a password with a slash, which makes it no URL
    return without_tokens(re.sub(r"(?s)^(\w+://)?.*@", r"\1", url))


def without_tokens(path: str) -> str:
    """A path with `****` for each part that looks like a token."""
    return TOKEN.sub(HIDDEN, path)


def _parsed(url: str) -> urllib.parse.SplitResult | None:
    """The parts of a URL of HTTP; None if it is none."""
    try:
        parts = urllib.parse.urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0  # a wrong port raises ValueError
    except ValueError:
        return None
    return parts if has_host and parts.scheme in ("http", "https") else None


class Missing(SiteError):
    """The server answers, and does not have the page."""


@dataclass
class Web:
    """Fetches pages. A server that does not answer is not asked again. No message has a URL's login."""

    pages: dict[str, bytes] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)  # host: why it does not answer

    def get(self, url: str, accept: str = "*/*") -> bytes:
        """The content of a page. Raises Missing, or SiteError if the server does not answer."""
        if url not in self.pages:
            self.pages[url] = self._open(url, "GET", accept)
        return self.pages[url]

    def length(self, url: str) -> int | None:
        """The size of a file that is not fetched, None if its server does not report it. Raises as `get`."""
        found = self._open(url, "HEAD", "*/*")
        return int(found) or None if re.fullmatch(rb"\d{1,18}", found) else None

    def part(self, url: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end` of a file. Raises SiteError if the server sends no parts."""
        found = self._open(url, "GET", "*/*", {"Range": f"bytes={start}-{end - 1}"}, status=206)
        return found[: end - start]

    def _open(
        self, url: str, method: str, accept: str, headers: Mapping[str, str] | None = None, status: int = 200
    ) -> bytes:
        """The content, or of HEAD the length."""
        if (parts := _parsed(url)) is None:
            login = ", and / as %2F in a login" if "@" in url else ""
            raise SiteError(f"{shown(url)} is not a URL of a server; write https://HOST/PATH{login}")
        login, _, host = parts.netloc.rpartition("@")
        if why := self.silent.get(host):
            raise SiteError(why)
        plain = urllib.parse.urlunsplit(parts._replace(netloc=host))
        try:
            asked = urllib.request.Request(plain, headers={"Accept": accept, **(headers or {})}, method=method)
            if login:
                asked.add_unredirected_header("Authorization", f"Basic {_encoded(login)}")
            with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
                if answer.status != status:
                    raise SiteError(f"{host} answers {answer.status}, not {status}")
                found = answer.read(LARGEST_BYTES) if method == "GET" else answer.headers.get("Content-Length", "0")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                raise Missing(f"{host} does not have {without_tokens(parts.path)}") from None
            raise SiteError(f"{host} answers {error.code} ({error.reason})") from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            self.silent[host] = f"{host} cannot be reached: {getattr(reason, 'strerror', None) or reason}"
            raise SiteError(self.silent[host]) from None
        return found if isinstance(found, bytes) else found.encode()


def _encoded(login: str) -> str:
    """The login of a URL, as HTTP's basic authentication wants it."""
    return base64.b64encode(urllib.parse.unquote(login).encode()).decode()


class RemoteFile(io.RawIOBase):
    """A file of a server, of which only those parts are fetched that are read."""

    def __init__(self, web: Web, url: str, size_bytes: int) -> None:
        self._web, self._url, self._size_bytes, self._at = web, url, size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size_bytes)
        if end <= self._at:
            return 0
        found = self._web.part(self._url, self._at, end)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)
