"""Secrets of a build: read when it begins, hidden in all that it prints."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.build_secrets import HIDDEN, SHORTEST, Secrets, hiding, read


def test_secrets_come_from_variables_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDEX", "https://me:abcd$(id)@a.org/")
    (tmp_path / "token").write_text("t0ken\n")
    (tmp_path / "ca.pem").write_text("certificates")
    found = read({"PIP_INDEX_URL": "env:INDEX", "TOKEN": "file:token", "ca_bundle": "file:ca.pem"}, tmp_path)
    assert found.values == {"PIP_INDEX_URL": "https://me:abcd$(id)@a.org/", "TOKEN": "t0ken"}
    environment = found.environment("APPTAINER")
    assert environment["APPTAINERENV_TORUSRUN_SECRET_TOKEN"] == "dDBrZW4="
    assert environment["SSL_CERT_FILE"] == f"{tmp_path}/ca.pem"
    assert list(found.bound()) == [(tmp_path / "ca.pem", "ca.pem")]
    assert "t0ken" not in repr(found)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"A": "env:NOT_SET_ANYWHERE"}, "the variable NOT_SET_ANYWHERE is not set here"),
        ({"A": "file:none"}, "none: cannot be read: No such file"),
        ({"netrc": "file:none"}, "none: cannot be read: No such file"),
        ({"netrc": "file:bad"}, "bad:1: this is not a netrc file"),
        ({"A": "file:."}, "cannot be read: this is not a regular file"),
    ],
)
def test_a_secret_that_is_not_there_is_named(tmp_path: Path, named: dict[str, str], says: str) -> None:
    (tmp_path / "bad").write_text("mchine a\n")
    with pytest.raises(UserError, match=says):
        read(named, tmp_path)


@given(st.lists(st.text(min_size=SHORTEST, max_size=12), min_size=1, max_size=4), st.text(max_size=30))
def test_no_secret_is_left_in_a_text(hidden: list[str], around: str) -> None:
    text = around + around.join(hidden)
    left = hiding(hidden)(text).replace(HIDDEN, "")
    assert len(left) <= len(text)
    for secret in hidden:
        assert secret not in hiding(hidden)(secret) or secret in HIDDEN


def test_what_is_secret_of_a_url_is_hidden_alone() -> None:
    redactor = Secrets({"A": "https://token-only@a.org/", "B": "https://user:p%40ss@a.org"}).redactor
    assert redactor("token-only user p%40ss p@ss https://token-only@a.org/") == "**** user **** **** ****"


def test_a_token_in_the_path_of_a_url_is_hidden_in_every_url() -> None:
    redactor = Secrets({"A": "https://a.org/t0k-en/simple", "B": "/etc/simple"}).redactor
    assert redactor("Looking in https://a.org/t0k-en/simple/x/ with /etc") == "Looking in ****/x/ with /etc"
    assert redactor("https://a.org/t0k-en/packages/x.whl") == "https://a.org****/packages/x.whl"
    devpi = Secrets({"A": "https://a.org/root/pypi/+simple/"}).redactor
    assert devpi("in /root/.cache/pip of pypi") == "in /root/.cache/pip of pypi"


def test_a_variable_of_any_bytes_is_hidden_also_where_a_url_quotes_it() -> None:
    redactor = Secrets({"A": "p\udcff&ss"}).redactor
    assert redactor("https://me:p%FF%26ss@a.org p\udcff&ss") == "https://me:****@a.org ****"
