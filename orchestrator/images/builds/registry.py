"""The current digest of a registry's tag, from the registry's own interface (OCI distribution, version 2).

Only public images are queried: without a login, or with a token that the registry gives to all users.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from torusrun.orchestrator.base.errors import SiteError

ASKING_S = 20.0
DOCKER_HUB, DOCKER_HUB_HOST = "docker.io", "registry-1.docker.io"
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
LARGEST_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True)
class Reference:
    """An image of a registry. `host` may have a port; `digest` is '' if the image is named by its tag alone."""

    host: str
    repository: str
    tag: str = "latest"
    digest: str = ""


def parse(text: str) -> Reference:
    """A reference as Docker writes it: debian:12, host:5000/a/b@sha256:..."""
    name, _, digest = text.partition("@")
    first, slash, rest = name.partition("/")
    named = slash and ("." in first or ":" in first or first == "localhost")
    host, path = (first, rest) if named else (DOCKER_HUB, name)
    repository, _, tag = path.partition(":")
    if host == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(host, repository, tag or "latest", digest)


def pinned(text: str, scheme: str = "https") -> str:
    """The reference `text` with the current digest of its tag. A reference with a digest is returned unchanged.

    Raises SiteError if the registry does not report the digest.
    """
    reference = parse(text)
    if reference.digest:
        return text
    digest = _digest(reference, scheme)
    name = text[: -len(reference.tag) - 1] if text.endswith(f":{reference.tag}") else text
    return f"{name}@{digest}"


def parse_challenge(header: str) -> dict[str, str]:
    """The realm, service and scope that a registry requires in WWW-Authenticate; {} unless it wants a bearer token."""
    kind, _, rest = header.partition(" ")
    return dict(re.findall(r'(\w+)="([^"]*)"', rest)) if kind.lower() == "bearer" else {}


def _digest(reference: Reference, scheme: str) -> str:
    host = DOCKER_HUB_HOST if reference.host == DOCKER_HUB else reference.host
    url = f"{scheme}://{host}/v2/{reference.repository}/manifests/{reference.tag}"
    headers = {"Accept": ", ".join(MANIFESTS)}
    try:
        try:
            answer = _asked(url, headers, "HEAD")
        except urllib.error.HTTPError as error:
            challenge = parse_challenge(error.headers.get("WWW-Authenticate", ""))
            if error.code != 401 or not challenge.get("realm", "").startswith("https://"):
                raise
            answer = _asked(url, {**headers, "Authorization": f"Bearer {_token(challenge)}"}, "HEAD")
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(getattr(error, "reason", error), "strerror", None) or error
        raise SiteError(f"{host} does not report the digest of {reference.repository}:{reference.tag}: {why}") from None
    digest = answer.headers.get("Docker-Content-Digest", "")
    if not DIGEST.fullmatch(digest):
        raise SiteError(f"{host} does not name a digest of {reference.repository}:{reference.tag}")
    return str(digest)


def _token(challenge: dict[str, str]) -> str:
    """A public token. Raises ValueError if the answer holds none."""
    query: dict[str, str] = {name: value for name, value in challenge.items() if name in ("service", "scope")}
    with _asked(f"{challenge['realm']}?{urllib.parse.urlencode(query)}", {}, "GET") as answer:
        found = json.loads(answer.read(LARGEST_ANSWER_BYTES))
    token = (found.get("token") or found.get("access_token")) if isinstance(found, dict) else None
    if not isinstance(token, str):
        raise ValueError("it gives no token without a login")
    return token


def _asked(url: str, headers: dict[str, str], method: str) -> Any:
    asked = urllib.request.Request(url, headers=headers, method=method)
    return urllib.request.urlopen(asked, timeout=ASKING_S)
