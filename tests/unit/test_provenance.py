"""Provenance asks git, and nothing that a checkout names is run for it."""

import getpass
import os
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.verbs import Patch
from torusrun.orchestrator.base.environment import user_name
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.run.folder import checkout as checkout_of
from torusrun.orchestrator.run.folder import provenance

STRANGER = 4321


def git(folder: Path, *words: str) -> None:
    name = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    subprocess.run(["git", "-C", folder, *name, *words], check=True, capture_output=True, timeout=300)


@pytest.fixture
def checkout(home: Path, tmp_path: Path) -> Path:
    """A checkout whose configuration names programs wherever git lets it."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "run.yaml").write_text("name: x\n")
    (folder / ".gitattributes").write_text("*.yaml filter=evil diff=evil\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "run.yaml").write_text("name: changed\n")
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\ncat\n")
    evil.chmod(0o755)
    for key in ("core.fsmonitor", "filter.evil.clean", "diff.evil.command", "diff.evil.textconv", "diff.external"):
        git(folder, "config", key, str(evil))
    hook = folder / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(evil.read_text())
    hook.chmod(0o755)
    return folder


def test_nothing_that_a_checkout_names_is_run(checkout: Path, tmp_path: Path) -> None:
    found, diff = provenance.gather(checkout)
    assert found["git"]["dirty"] and "+name: changed" in diff
    assert not (tmp_path / "pwned").exists()


def included(folder: Path, evil: str) -> None:
    (folder.parent / "more").write_text(f'[filter "more"]\n\tclean = {evil}\n')
    git(folder, "config", "include.path", str(folder.parent / "more"))


def of_the_work_tree(folder: Path, evil: str) -> None:
    git(folder, "config", "extensions.worktreeConfig", "true")
    git(folder, "config", "--worktree", "filter.more.clean", evil)


def of_the_user(folder: Path, evil: str) -> None:
    git(folder, "config", "--global", "filter.more.clean", evil)


def a_process(folder: Path, evil: str) -> None:
    git(folder, "config", "filter.more.process", evil)


@pytest.mark.parametrize("configure", [included, of_the_work_tree, of_the_user, a_process])
def test_no_filter_is_run_wherever_it_is_configured(
    configure: Callable[[Path, str], None], checkout: Path, tmp_path: Path
) -> None:
    (checkout / ".gitattributes").write_text("*.yaml filter=more\n")
    configure(checkout, f"{tmp_path}/evil")
    found, diff = provenance.gather(checkout)
    assert found["git"]["dirty"] and "+name: changed" in diff
    assert not (tmp_path / "pwned").exists()


def test_a_filter_that_cannot_be_turned_off_is_not_run(checkout: Path, tmp_path: Path) -> None:
    """git takes what follows the first '=' of `-c NAME=VALUE` for the value."""
    (checkout / ".gitattributes").write_text("*.yaml filter=a=b\n")
    git(checkout, "config", "filter.a=b.clean", f"{tmp_path}/evil")
    provenance.gather(checkout)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(("key", "url"), [("core.sshCommand", "ssh://host/x"), ("remote.origin.uploadpack", "/tmp"),
                                          ("protocol.ext.allow", "ext::{evil}")])  # fmt: skip
def test_nothing_is_fetched_for_a_partial_clone(key: str, url: str, checkout: Path, tmp_path: Path) -> None:
    evil = str(tmp_path / "evil")
    git(checkout, "config", key, "always" if "protocol" in key else evil)
    for name, value in (("url", url.format(evil=evil)), ("promisor", "true"), ("partialclonefilter", "blob:none")):
        git(checkout, "config", f"remote.origin.{name}", value)
    git(checkout, "config", "core.repositoryFormatVersion", "1")
    git(checkout, "config", "extensions.partialClone", "origin")
    for kept in (checkout / ".git/objects").glob("??/*"):  # what is not there is fetched when it is needed
        if b"name: x" in zlib.decompress(kept.read_bytes()):
            kept.unlink()
    provenance.gather(checkout)
    assert checkout_of.listed(checkout) == [".gitattributes", "run.yaml"]
    assert not (tmp_path / "pwned").exists()


@pytest.mark.needs("users")
def test_another_users_checkout_is_not_queried_about(checkout: Path, tmp_path: Path) -> None:
    os.chown(checkout / ".git", STRANGER, STRANGER)
    (Path(os.environ["HOME"]) / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    assert provenance.gather(checkout)[0]["git"] is None
    assert not (tmp_path / "pwned").exists()


def test_a_folder_in_no_checkout_has_no_commit_and_a_user_without_a_name_a_number(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    facts, diff = provenance.gather(tmp_path)
    assert facts["git"] is None and diff == ""

    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert user_name() == str(os.getuid())


def test_the_diff_quotes_no_file_that_holds_secrets(checkout: Path, tmp_path: Path) -> None:
    secret = (
        "deploy/.env", "deploy/.envrc", "hf_token.txt", "wandb-api-key.txt", ".secrets/wandb", "id_ed25519",
        "keys/server.pem", "conf/mine", "öd\nd.key",
    )  # fmt: skip
    quoted = ("tokens.py", "tokenizer.json", "environment.yaml", "notes.md")
    for name in (*secret, *quoted):
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text("before\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "all of it")
    for name in secret:
        (checkout / name).write_text("very-secret\n")
    for name in quoted:
        (checkout / name).write_text(f"public {name}\n")
    git(checkout, "mv", "deploy/.env", "deploy/renamed.conf")
    (checkout / "deploy/renamed.conf").write_text("before\nmore\n")
    (tmp_path / "named").symlink_to(checkout / "conf/mine")
    for folder in (checkout, checkout / "conf"):
        _, diff = provenance.gather(folder, secret=[str(tmp_path / "named")])
        assert "very-secret" not in diff
        assert all(f"+public {name}" in diff for name in quoted), diff
        said = {line for line in diff.splitlines() if line.startswith("# ")}
        shown = [name.replace("\n", "\\n") for name in (*secret, "deploy/renamed.conf")]
        assert said == {f"# {name}: changed; left out, as it may hold a secret" for name in shown}
    patch = tmp_path / "code.diff"
    patch.write_text(diff)
    git(checkout, "apply", "--check", "--reverse", str(patch))


def test_a_git_that_is_too_slow_for_the_changes_still_gives_the_commit(checkout: Path, monkeypatch: Patch) -> None:
    ask = checkout_of._ask

    def slow(folder: Path, *words: str, fails: bool = False, undecodable: str = "replace") -> str:
        if "status" in words:
            raise SiteError("asking git: no answer within 20 s")
        return ask(folder, *words, fails=fails, undecodable=undecodable)

    monkeypatch.setattr(checkout_of, "_ask", slow)
    found, diff = provenance.gather(checkout)
    assert len(found["git"]["commit"]) == 40 and "no answer" in found["git"]["unknown"] and not diff
