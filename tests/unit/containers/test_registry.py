"""References as Docker writes them, and what registries answer."""

import pytest

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.builds.registry import Reference, parse, parse_challenge, pinned

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("debian", Reference("docker.io", "library/debian")),
        ("debian:12", Reference("docker.io", "library/debian", "12")),
        ("me/mine:1.0", Reference("docker.io", "me/mine", "1.0")),
        ("docker.io/me/mine", Reference("docker.io", "me/mine")),
        ("localhost/mine", Reference("localhost", "mine")),
        ("registry.example.org:5000/a/b/c:x", Reference("registry.example.org:5000", "a/b/c", "x")),
        (f"nvcr.io/nvidia/pytorch:24.01-py3@{DIGEST}", Reference("nvcr.io", "nvidia/pytorch", "24.01-py3", DIGEST)),
    ],
)
def test_references(text: str, found: Reference) -> None:
    assert parse(text) == found


def test_the_request_of_a_registry_for_a_login_is_read() -> None:
    """The header is the one that Docker's documentation of its token authentication shows."""
    header = (
        'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",'
        'scope="repository:samalba/my-app:pull,push"'
    )
    assert parse_challenge(header) == {
        "realm": "https://auth.docker.io/token",
        "service": "registry.docker.io",
        "scope": "repository:samalba/my-app:pull,push",
    }
    assert parse_challenge('Basic realm="x"') == parse_challenge("") == {}


def test_a_digest_is_requested_once_and_a_missing_answer_is_one_message() -> None:
    assert pinned(f"debian:12@{DIGEST}") == f"debian:12@{DIGEST}"
    with pytest.raises(SiteError, match="127.0.0.1:9 does not report the digest of a/b:1: .*refused"):
        pinned("127.0.0.1:9/a/b:1")
